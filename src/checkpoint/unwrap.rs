//! Prefixes of tensor names that come from saving a model inside something else: a trainer's module, a compiled or averaged copy,
//! a pipeline.

use std::collections::{BTreeMap, BTreeSet};

use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Parts of names that wrappers add at any position.
const WRAPPERS: [&str; 5] = [
    "_orig_mod.",
    "_fsdp_wrapped_module.",
    "_checkpoint_wrapped_module.",
    "_forward_module.",
    "_module.",
];
/// Limit on the dot-separated parts of a prefix.
const DEEPEST: usize = 4;
/// Limit on the prefixes that are tried.
const MOST_TRIED: usize = 12;
/// Fewest tensors of a model.
const LEAST_TENSORS: usize = 4;

/// The tensors under names without a wrapper's prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct Unwrapped {
    /// Description of what was removed.
    pub without: String,
    /// The new names of renamed tensors.
    moved: BTreeSet<String>,
    index: BTreeMap<String, TensorInfo>,
}

impl Unwrapped {
    /// Whether this is the new name of a renamed tensor.
    pub fn has_moved(&self, name: &str) -> bool {
        self.moved.contains(name)
    }
}

impl Tensors {
    /// Proposes names without wrappers, the likeliest first.
    pub fn unwrapped(&self) -> Vec<Unwrapped> {
        let bare: Option<BTreeMap<String, TensorInfo>> = without(&self.index, |name| {
            let mut bare = name.to_owned();
            for wrapper in WRAPPERS {
                bare = bare.replace(wrapper, "");
            }
            bare
        });
        let is_changed = bare
            .as_ref()
            .is_some_and(|bare| !bare.keys().eq(self.index.keys()));
        let (from, wrappers) = match (&bare, is_changed) {
            (Some(bare), true) => (bare, "wrappers"),
            _ => (&self.index, ""),
        };
        let mut found = Vec::new();
        if is_changed {
            let moved = from.keys().filter(|name| !self.index.contains_key(*name));
            found.push(Unwrapped {
                without: wrappers.to_owned(),
                moved: moved.cloned().collect(),
                index: from.clone(),
            });
        }
        for prefix in prefixes(from) {
            let Some(index) = without(from, |name| {
                name.strip_prefix(&prefix).unwrap_or(name).to_owned()
            }) else {
                continue;
            };
            let moved = from.keys().filter_map(|name| name.strip_prefix(&prefix));
            found.push(Unwrapped {
                moved: moved.map(str::to_owned).collect(),
                without: match wrappers {
                    "" => prefix,
                    _ => format!("{wrappers} and {prefix}"),
                },
                index,
            });
        }
        found
    }

    /// Returns the current names, so that they can be restored.
    pub fn names_as_they_are(&self) -> Unwrapped {
        Unwrapped {
            without: String::new(),
            moved: BTreeSet::new(),
            index: self.index.clone(),
        }
    }

    /// Replaces the names.
    pub fn take_names(&mut self, unwrapped: &Unwrapped) {
        self.index.clone_from(&unwrapped.index);
    }
}

/// Renames tensors; `None` if two would get the same name.
fn without(
    index: &BTreeMap<String, TensorInfo>,
    rename: impl Fn(&str) -> String,
) -> Option<BTreeMap<String, TensorInfo>> {
    let mut renamed = BTreeMap::new();
    for (name, info) in index {
        if renamed.insert(rename(name), info.clone()).is_some() {
            return None;
        }
    }
    Some(renamed)
}

/// Lists prefixes that several tensors share: those with most tensors first, averaged copies last.
fn prefixes(index: &BTreeMap<String, TensorInfo>) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in index.keys() {
        let ends = name.match_indices('.').take(DEEPEST).map(|(at, _)| at + 1);
        for end in ends {
            *counts.entry(&name[..end]).or_default() += 1;
        }
    }
    let mut found: Vec<(&str, usize)> = counts
        .into_iter()
        .filter(|(_, n)| *n >= LEAST_TENSORS)
        .collect();
    let is_average = |prefix: &str| {
        let lower = prefix.to_lowercase();
        ["ema", "averag", "teacher", "target", "ref"]
            .iter()
            .any(|word| lower.contains(word))
    };
    found.sort_by_key(|(prefix, n)| (is_average(prefix), usize::MAX - n, prefix.len()));
    let found = found.into_iter().take(MOST_TRIED);
    found.map(|(prefix, _)| prefix.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::stored::Stored;

    fn tensors(names: &[&str]) -> Tensors {
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: vec![0],
            strides: None,
            file_idx: 0,
            bytes: 0..0,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        let index = names.iter().map(|name| ((*name).to_owned(), info.clone()));
        Tensors {
            index: index.collect(),
            ..Tensors::default()
        }
    }

    #[test]
    fn the_model_is_proposed_before_its_average() {
        let names = [
            "ema.net.a",
            "ema.net.b",
            "ema.net.c",
            "ema.net.d",
            "net.a",
            "net.b",
            "net.c",
            "net.d",
            "step",
        ];
        let found = tensors(&names).unwrapped();
        let tried: Vec<&str> = found.iter().map(|found| found.without.as_str()).collect();
        assert_eq!(tried[0], "net.");
        assert!(tried.contains(&"ema.net."), "{tried:?}");
        assert!(found[0].index.contains_key("a") && found[0].index.contains_key("step"));
    }

    #[test]
    fn wrappers_inside_names_are_removed_first() {
        let names = [
            "model._fsdp_wrapped_module.h.0._checkpoint_wrapped_module.w",
            "model._fsdp_wrapped_module.h.1.w",
            "model._fsdp_wrapped_module.h.2.w",
            "model._fsdp_wrapped_module.h.3.w",
        ];
        let found = tensors(&names).unwrapped();
        assert!(found[0].index.contains_key("model.h.0.w"));
        assert!(
            found[1].index.contains_key("h.0.w"),
            "{:?}",
            found[1].without
        );
    }
}
