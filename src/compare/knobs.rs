//! Compares the knobs of two models: each spec is a flat list of names and values.

use std::collections::BTreeMap;
use std::fmt;

use attnscope_spec::ModelSpec;

use super::knob::{KnobKind, KnobValue, SpecKnob};
use super::spec_knobs::spec_knobs;

/// A knob whose values differ between two models.
#[derive(Debug, Clone, PartialEq)]
pub struct KnobDifference {
    /// The knob's name, with its place if only a part of the model differs: `rope_theta`, `window@L3`.
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

/// Returns the knobs that differ: those that change the computation first, then sizes, then labels; each kind in the order of
/// the model.
pub fn knob_differences(a: &ModelSpec, b: &ModelSpec) -> Vec<KnobDifference> {
    let (of_a, of_b) = (spec_knobs(a), spec_knobs(b));
    let values_b: BTreeMap<(&str, &str), &KnobValue> = of_b
        .iter()
        .map(|knob| ((knob.name, knob.slot.as_str()), &knob.value))
        .collect();
    // A layer or norm that one model lacks is itself a knob, so its parts are not listed again.
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

/// Returns the rows of one knob: a single one if it differs everywhere in the same way, else one per pair of values with its
/// places.
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

/// Returns the first knob that prevents running two models side by side: a size, or a part that only one has.
pub fn preventing(differences: &[KnobDifference]) -> Option<&KnobDifference> {
    differences
        .iter()
        .find(|difference| difference.kind == KnobKind::Shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checkpoint::Checkpoint;
    use attnscope_run::{WhatIf, with_what_ifs};

    fn spec(of: &str) -> ModelSpec {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
            .join(format!("oracle/{of}/model"));
        let checkpoint = Checkpoint::open(&path).expect("opens");
        attnscope_families::read(checkpoint)
            .expect("is understood")
            .spec
    }

    fn written(a: &ModelSpec, b: &ModelSpec) -> Vec<String> {
        let rows = knob_differences(a, b);
        rows.iter().map(KnobDifference::to_string).collect()
    }

    #[test]
    fn a_model_has_no_differences_from_itself() {
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
        own.attention.mask.window = Some(attnscope_compute::attention::Window::Back(8));
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

    /// Whether some word is an identifier of the code: `OfKeys`, `GeluTanh`, `Some`.
    fn is_code(text: &str) -> bool {
        let names = ["Some", "None", "Zero", "Mean", "Gelu", "Relu", "Silu"];
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let is_camel = |word: &str| {
            let mut pairs = word.chars().zip(word.chars().skip(1));
            // Heads and layers are written as L3H7.
            pairs.any(|(a, b)| a.is_lowercase() && b.is_uppercase())
        };
        let has_name = words.any(|word| is_camel(word) || names.contains(&word));
        has_name || text.contains(['{', '}', '[', ']', '"'])
    }

    #[test]
    fn knob_values_contain_no_code_identifiers() {
        let cases = std::fs::read_dir(
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                .join("oracle"),
        )
        .expect("cases");
        let mut names: Vec<String> = cases
            .map(|case| case.expect("a case").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| {
                std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                    .join(format!("oracle/{name}/model"))
                    .exists()
            })
            .collect();
        names.sort();
        let mut n_specs = 0;
        for name in &names {
            let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                .join(format!("oracle/{name}/model"));
            // A few fixtures also need command-line options.
            let Ok(checkpoint) = Checkpoint::open(&path) else {
                continue;
            };
            let Ok(read) = attnscope_families::read(checkpoint) else {
                continue;
            };
            n_specs += 1;
            for knob in spec_knobs(&read.spec) {
                let value = knob.value.to_string();
                assert!(!is_code(&value), "{name}: {} {value}", knob.name);
            }
        }
        assert!(n_specs > 150, "{n_specs} of {}", names.len());
    }

    #[test]
    fn knob_values_of_what_ifs_use_the_syntax_that_sets_them() {
        for (what_if, expected) in [
            ("scale=sum_key_norms", "scale 0.25 → sum_key_norms"),
            ("scale=p_norm:3", "scale 0.25 → p_norm:3"),
            ("softmax_axis=queries", "softmax_axis keys → queries"),
            ("mask=none@L1", "mask@L1 causal → bidirectional"),
            ("drop=zero@L1H2", "heads_that_differ@L1 none → H2 drop=zero"),
        ] {
            let a = spec("gpt2");
            let what_if: WhatIf = what_if.parse().expect("a change");
            let b = with_what_ifs(&a, &[what_if]).expect("applies");
            assert_eq!(written(&a, &b), [expected]);
        }
        let a = spec("gpt2");
        let value = |words: &[&str]| {
            let what_ifs = words.iter().map(|words| words.parse().expect("a change"));
            let b = with_what_ifs(&a, &what_ifs.collect::<Vec<_>>()).expect("applies");
            let knobs = spec_knobs(&b);
            let mut found = knobs
                .iter()
                .filter(|knob| knob.name == "heads_that_differ")
                .map(|knob| knob.value.to_string());
            found.find(|value| value != "none").expect("heads")
        };
        assert_eq!(value(&["drop=zero@L1H2"]), "H2 drop=zero");
        assert_eq!(value(&["scale=none@L0H1"]), "H1 scale=1");
        let both = value(&["scale=n_sqrt_d@L0H1", "temperature=2@L0H1"]);
        assert_eq!(both, "H1 scale=n_sqrt_d × 0.5");
    }
}
