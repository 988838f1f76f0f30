//! What was done to the scores beside one softmax.
//!
//! - **twice**: the result of a softmax went through a second one, with the mask applied again or without: then hidden keys
//!   enter the second softmax as zeros and get weight.
//! - **one more in the denominator** (softmax1): weights sum to less than 1.
//! - **mask afterwards**: a softmax over all keys, later ones set to zero, nothing divided again.
//!
//! Tried in all layers, and in each layer alone where the budget allows.

use attnscope_compute::attention::{AttentionOverride, SoftmaxAxis, SoftmaxOverride};
use attnscope_spec::BlockSpec;

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "softmax",
    source: include_str!("softmax.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let reading = |name: &str, softmax: SoftmaxOverride| {
        let odd = AttentionOverride {
            softmax: Some(softmax),
            ..AttentionOverride::NONE
        };
        Reading::new(FAMILY.id, name, "")
            .odd(odd)
            .local(IsLocal::InLayers)
    };
    let Some(declared) = known.blocks().find_map(BlockSpec::attention) else {
        return Vec::new();
    };
    if declared.softmax_axis == SoftmaxAxis::Queries {
        return Vec::new();
    }
    let twice = |leaks| SoftmaxOverride::Twice { leaks };
    let mut all = vec![reading("softmax applied twice", twice(false)).smoothing(true)];
    let has_sinks = known.blocks().any(|block| {
        block
            .own()
            .is_some_and(|own| own.projections.sinks.is_some())
    });
    if !has_sinks {
        all.push(reading(
            "one more in the softmax's denominator",
            SoftmaxOverride::PlusOne,
        ));
    }
    let is_causal = |block: &BlockSpec| block.attention().is_some_and(|own| own.mask.causal);
    if known.blocks().any(is_causal) {
        let name = "softmax applied twice, masked only the first time";
        all.push(reading(name, twice(true)));
        let name = "the mask applied after the softmax";
        all.push(reading(name, SoftmaxOverride::MaskedAfter));
    }
    all
}
