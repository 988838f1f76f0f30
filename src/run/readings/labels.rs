//! Which token a position was trained to predict.
//!
//! - **its own** (labels that were not shifted): the model has learned to say what it is given.
//! - **the second after it** (labels shifted twice: by the data and by the loss).

use attnscope_checks::SeesLabels;

use super::{Family, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "labels",
    source: include_str!("labels.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    if !known.spec().is_causal_lm || known.spec().is_encoder_decoder() {
        return Vec::new();
    }
    let advice = "shift labels once: by the data or by the loss, not by both or neither";
    let own = Reading {
        offset: 0,
        ..Reading::new(FAMILY.id, "labels that were not shifted", advice)
    };
    let second = Reading {
        offset: 2,
        ..Reading::new(FAMILY.id, "labels that were shifted twice", advice)
    };
    vec![own.seeing_labels(SeesLabels::Plainly), second]
}
