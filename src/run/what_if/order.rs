//! Orders several changes, so that the result does not depend on the order in which they were written.
//!
//! Changes that set a value come before those that multiply it, and wider places before narrower ones. Two changes that
//! set one value differently at one place contradict each other.

use attnscope_compute::error::{Error, Result};
use attnscope_spec::Place;

use super::{Change, WhatIf};

/// Value that a change sets; changes of one value at one place must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knob {
    Scale,
    Temperature,
    SoftmaxAxis,
    Mask,
    Window,
    QkNorm,
    Softcap,
    Cache,
    Streaming,
    TopKeys,
    Weights,
    Output,
}

impl Change {
    fn knob(self) -> Knob {
        match self {
            Self::Scale(_) | Self::ScaleBy(_) => Knob::Scale,
            Self::Temperature(_) => Knob::Temperature,
            Self::SoftmaxAxis(_) => Knob::SoftmaxAxis,
            Self::Mask(_) | Self::MaskAsDeclared => Knob::Mask,
            Self::Window(_) => Knob::Window,
            Self::QkNorm(_) => Knob::QkNorm,
            Self::Softcap(_) => Knob::Softcap,
            Self::Cache(_) => Knob::Cache,
            Self::Streaming(_) => Knob::Streaming,
            Self::TopKeys(_) => Knob::TopKeys,
            Self::Weights(_) => Knob::Weights,
            Self::Drop(_) => Knob::Output,
        }
    }

    /// When it is applied: changes that depend on the declared mask first, those that modify a present value last.
    fn turn(self) -> usize {
        match self {
            Self::Cache(_) | Self::Streaming(_) => 0,
            Self::ScaleBy(_) | Self::Temperature(_) | Self::Window(_) => 2,
            _ => 1,
        }
    }

    /// Whether it may be repeated at one place: factors multiply.
    fn adds_up(self) -> bool {
        matches!(self, Self::ScaleBy(_) | Self::Temperature(_))
    }
}

/// Rank of a place: everywhere, one stack, one layer, one head.
fn narrowness(place: Place) -> usize {
    usize::from(place.stack.is_some())
        + 2 * usize::from(place.layer_idx.is_some())
        + 4 * usize::from(place.head_idx.is_some())
}

/// Every change at every place, in the order of application.
///
/// # Errors
/// When two changes contradict each other.
pub(super) fn in_order(what_ifs: &[WhatIf]) -> Result<Vec<(&WhatIf, Place)>> {
    let mut all: Vec<(&WhatIf, Place)> = what_ifs
        .iter()
        .flat_map(|what_if| {
            what_if
                .places()
                .into_iter()
                .map(move |place| (what_if, place))
        })
        .collect();
    for (nth, (later, at)) in all.iter().enumerate() {
        for (earlier, other) in &all[..nth] {
            if at == other && contradict(earlier.change, later.change) {
                return Err(Error::Setting(format!(
                    "--what-if {later}: it contradicts --what-if {earlier}; expected one of them"
                )));
            }
        }
    }
    // The sort is stable, and changes with equal keys commute.
    all.sort_by_key(|(what_if, place)| (what_if.change.turn(), narrowness(*place)));
    Ok(all)
}

impl WhatIf {
    /// Whether two changes are incompatible because they set one value differently at some place.
    pub fn contradicts(&self, other: &Self) -> bool {
        let places = other.places();
        contradict(self.change, other.change)
            && self.places().iter().any(|place| places.contains(place))
    }
}

/// Whether two changes at one place are incompatible.
fn contradict(a: Change, b: Change) -> bool {
    a.knob() == b.knob() && a != b && !a.adds_up() && !b.adds_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_what_ifs;
    use attnscope_checkpoint::Checkpoint;
    use attnscope_compute::attention::AttentionSpec;
    use attnscope_spec::ModelSpec;

    fn spec() -> ModelSpec {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/induction");
        let checkpoint = Checkpoint::open(std::path::Path::new(directory)).expect("opens");
        attnscope_families::read(checkpoint).expect("reads").spec
    }

    fn with(words: &[&str]) -> Result<ModelSpec> {
        let what_ifs: Vec<WhatIf> = words.iter().map(|word| word.parse().expect(word)).collect();
        with_what_ifs(&spec(), &what_ifs)
    }

    fn attention(spec: &ModelSpec, layer_idx: usize) -> &AttentionSpec {
        spec.main_stack().blocks()[layer_idx]
            .attention()
            .expect("attention")
    }

    #[test]
    fn changes_compose_in_either_order() {
        for pair in [
            ["temperature=4", "scale=none"],
            ["scale=x2", "scale=inv_d"],
            ["temperature=2", "scale=sum_key_norms"],
            ["mask=window:3", "mask=none"],
            ["scale=none@L0", "scale=inv_d"],
            ["temperature=2@L0H1", "scale=none"],
            ["softcap=3@L0H1", "softcap=5"],
            ["temperature=2", "temperature=4@L1"],
            ["qk_norm=on", "scale=none"],
            ["drop=zero@L0H1", "temperature=3@L0"],
            ["kv=int4", "mask=none"],
            ["kv=fp8@L0", "kv=int8"],
            ["kv_window=3+sinks:1", "mask=none"],
            ["kv_window=3+sinks:1", "mask=window:8"],
            ["kv_window=3@L0H1", "kv_window=9"],
            ["top_k_keys=3", "top_k_keys=2@L1H0"],
            ["weights=bf16", "weights=fp8@L1"],
            ["weights=fp8", "scale=none@L0H2"],
        ] {
            let [first, second] = pair;
            let one = with(&[first, second]).expect("composes");
            let other = with(&[second, first]).expect("composes");
            assert_eq!(one, other, "{pair:?}");
            for word in pair {
                assert_ne!(
                    one,
                    with(&[word]).expect("is possible"),
                    "{pair:?}: {word} alone"
                );
            }
        }
        let both = with(&["temperature=4", "scale=none"]).expect("composes");
        let d_head = attention(&both, 0).d_head;
        assert_eq!(attention(&both, 0).scale.factor(d_head), 0.25);
        let narrow = with(&["scale=none@L0", "scale=inv_d"]).expect("composes");
        assert_eq!(attention(&narrow, 0).scale.factor(d_head), 1.0);
        assert_eq!(
            attention(&narrow, 1).scale.factor(d_head),
            1.0 / d_head as f32
        );
    }

    #[test]
    fn contradictions_are_refused_and_repetitions_are_not() {
        for pair in [
            ["scale=none", "scale=inv_d"],
            ["mask=none", "mask=declared"],
            ["mask=none", "mask=causal"],
            ["mask=window:3", "mask=window:4"],
            ["softcap=3@L0", "softcap=off@L0"],
            ["qk_norm=on", "qk_norm=off"],
            ["drop=zero@L0H1", "drop=mean@L0H1"],
            ["softmax_axis=keys", "softmax_axis=queries"],
            ["kv=fp8", "kv=int8"],
            ["kv_window=3", "kv_window=3+sinks:1"],
            ["top_k_keys=3@L0", "top_k_keys=4@L0"],
            ["weights=fp8", "weights=fp8_channel"],
            ["weights=q4_0", "weights=q4_k"],
        ] {
            for words in [pair, [pair[1], pair[0]]] {
                let message = with(&words).expect_err("contradicts").to_string();
                assert!(
                    message.contains(words[0]) && message.contains("contradicts"),
                    "{message}"
                );
            }
            with(&[pair[0], pair[0]]).expect("says it twice");
        }
    }
}
