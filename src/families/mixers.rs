//! The remark on a model with layers that do not attend: which layers these are, and what they do instead.

use std::collections::BTreeMap;

use attnscope_spec::{BlockSpec, FeedForward, ModelSpec};

/// Lists layers without attention to their own rows or an encoder's, and layers with another mixer beside it; `None` if every layer only attends.
pub(super) fn remark(spec: &ModelSpec) -> Option<String> {
    let mut without_attention: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut with_attention: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (layer_idx, block) in spec.main_stack().blocks().iter().enumerate() {
        let other = block.other_mixer().map(|mixer| mixer.label());
        match (block.own(), other) {
            (Some(_), Some(label)) => with_attention.entry(label).or_default().push(layer_idx),
            // A layer that looks at an encoder's rows alone.
            (None, None) if block.cross.is_some() => {}
            (None, label) => {
                let label = label.unwrap_or(match block.feed_forward {
                    FeedForward::None => "nothing at all",
                    _ => "only a feed-forward layer",
                });
                without_attention.entry(label).or_default().push(layer_idx);
            }
            (Some(_), None) => {}
        }
    }
    let named = |kinds: &BTreeMap<&str, Vec<usize>>| {
        let kinds = kinds.iter();
        let kinds = kinds.map(|(label, layers)| format!("{label} in {}", ranges(layers)));
        kinds.collect::<Vec<_>>().join(", ")
    };
    let mut said = Vec::new();
    if !without_attention.is_empty() {
        let n: usize = without_attention.values().map(Vec::len).sum();
        let of = spec.main_stack().blocks().len();
        let kinds = named(&without_attention);
        said.push(format!("{n} of {of} layers have no attention: {kinds}"));
    }
    if !with_attention.is_empty() {
        said.push(format!("beside attention: {}", named(&with_attention)));
    }
    let reads = |block: &BlockSpec| block.other_mixer().is_some_and(|m| m.reads_padding());
    if spec.main_stack().blocks().iter().any(reads) {
        said.push("padding before a text changes what they give".to_owned());
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// Formats sorted numbers, with consecutive ones as a range: `layers 0-2, 4`.
fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let word = if numbers.len() == 1 {
        "layer"
    } else {
        "layers"
    };
    let runs = runs.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    format!("{word} {}", runs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn consecutive_numbers_are_written_as_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "layers 0-2, 4, 6-7");
        assert_eq!(ranges(&[3]), "layer 3");
    }
}
