//! Knobs of two models side by side: each spec as a flat list of names and values, and the rows in which the two lists differ.

use std::collections::BTreeMap;
use std::fmt;

use super::knob::{KnobKind, KnobValue, SpecKnob};
use super::spec_knobs::spec_knobs;
use crate::model::ModelSpec;

/// A knob that two models have different values of.
#[derive(Debug, Clone, PartialEq)]
pub struct KnobDifference {
    /// The knob, with the place where only a part of the model differs: `rope_theta`, `window@L3`.
    pub knob: String,
    pub kind: KnobKind,
    pub a: KnobValue,
    pub b: KnobValue,
}

impl fmt::Display for KnobDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {}", self.knob, self.a, self.b)
    }
}

/// The knobs that differ. Those that change how values are computed come first, sizes before labels after them; in the order of
/// the model within each kind.
pub fn knob_differences(a: &ModelSpec, b: &ModelSpec) -> Vec<KnobDifference> {
    let (of_a, of_b) = (spec_knobs(a), spec_knobs(b));
    let values_b: BTreeMap<(&str, &str), &KnobValue> = of_b
        .iter()
        .map(|knob| ((knob.name, knob.slot.as_str()), &knob.value))
        .collect();
    // What one model lacks as a whole, a layer or a norm, is a knob of its own: its parts are not listed once more.
    let pairs = of_a.iter().filter_map(|knob| {
        let other = values_b.get(&(knob.name, knob.slot.as_str()))?;
        Some((knob, knob.value.clone(), (*other).clone()))
    });
    let all: Vec<(&SpecKnob, KnobValue, KnobValue)> = pairs.collect();
    let mut names: Vec<&str> = Vec::new();
    for (knob, ..) in &all {
        if !names.contains(&knob.name) {
            names.push(knob.name);
        }
    }
    let mut rows = Vec::new();
    for name in names {
        let of_name: Vec<_> = all.iter().filter(|(knob, ..)| knob.name == name).collect();
        rows.extend(rows_of(name, &of_name));
    }
    let order = |kind: KnobKind| match kind {
        KnobKind::Computation => 0,
        KnobKind::Shape => 1,
        KnobKind::Label => 2,
    };
    rows.sort_by_key(|row| order(row.kind));
    rows
}

/// The rows of one knob: a single one where it differs in the same way everywhere, else one for each value and its places.
fn rows_of(name: &str, all: &[&(&SpecKnob, KnobValue, KnobValue)]) -> Vec<KnobDifference> {
    let differing: Vec<_> = all.iter().filter(|(_, a, b)| a != b).collect();
    let Some((first, a, b)) = differing.first() else {
        return Vec::new();
    };
    let is_uniform = differing.len() == all.len()
        && differing
            .iter()
            .all(|(_, other_a, other_b)| (other_a, other_b) == (a, b));
    if is_uniform {
        return vec![KnobDifference {
            knob: name.to_owned(),
            kind: first.kind,
            a: a.clone(),
            b: b.clone(),
        }];
    }
    let mut rows: Vec<(Vec<&str>, KnobDifference)> = Vec::new();
    for (knob, a, b) in differing {
        let slot = knob.slot.as_str();
        match rows.iter_mut().find(|(_, row)| (&row.a, &row.b) == (a, b)) {
            Some((slots, _)) => slots.push(slot),
            None => {
                let row = KnobDifference {
                    knob: name.to_owned(),
                    kind: knob.kind,
                    a: a.clone(),
                    b: b.clone(),
                };
                rows.push((vec![slot], row));
            }
        }
    }
    rows.into_iter()
        .map(|(mut slots, mut row)| {
            slots.dedup();
            if slots.iter().any(|slot| !slot.is_empty()) {
                row.knob = format!("{name}@{}", slots.join(","));
            }
            row
        })
        .collect()
}

/// The first knob that keeps two models from being run side by side: a size, or a part that only one of them has.
pub fn preventing(differences: &[KnobDifference]) -> Option<&KnobDifference> {
    differences
        .iter()
        .find(|difference| difference.kind == KnobKind::Shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::family;

    fn spec(of: &str) -> ModelSpec {
        let path = crate::fixture(&format!("oracle/{of}/model"));
        let checkpoint = Checkpoint::open(&path).expect("opens");
        family::read(checkpoint).expect("is understood").spec
    }

    fn written(a: &ModelSpec, b: &ModelSpec) -> Vec<String> {
        let rows = knob_differences(a, b);
        rows.iter().map(KnobDifference::to_string).collect()
    }

    #[test]
    fn a_model_differs_from_itself_in_nothing() {
        for family in ["gpt2", "llama", "t5_v11", "bert", "mixtral_b", "gpt_oss"] {
            let spec = spec(family);
            assert_eq!(knob_differences(&spec, &spec), []);
        }
    }

    #[test]
    fn a_knob_of_all_layers_is_one_row_and_one_of_a_layer_names_it() {
        let a = spec("llama");
        let mut b = a.clone();
        for block in b.stacks[0].blocks_mut() {
            let own = block.own_mut().expect("attention");
            own.attention.rope.as_mut().expect("rope").theta = 500_000.0;
        }
        assert_eq!(written(&a, &b), ["rope_theta 10000 → 500000"]);
        let own = b.stacks[0].blocks_mut()[1].own_mut().expect("attention");
        own.attention.mask.window = Some(crate::attention::Window::Back(8));
        assert_eq!(
            written(&a, &b),
            ["window@L1 none → 8", "rope_theta 10000 → 500000"]
        );
    }

    #[test]
    fn a_size_prevents_a_run_and_a_longer_context_does_not() {
        let a = spec("gpt2");
        let mut b = a.clone();
        b.n_ctx = Some(4096);
        let rows = knob_differences(&a, &b);
        assert_eq!(rows.len(), 1);
        assert_eq!(preventing(&rows), None);
        let rows = knob_differences(&a, &spec("llama"));
        let first = preventing(&rows).expect("a size or a part");
        assert_eq!(first.kind, KnobKind::Shape);
    }
}
