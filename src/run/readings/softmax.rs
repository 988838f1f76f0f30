//! What was done to the scores beside one softmax.
//!
//! - **twice**: the result of a softmax went through a second one, with the mask applied again or without: then hidden keys
//!   enter the second softmax as zeros and get weight.
//! - **one more in the denominator** (softmax1): weights sum to less than 1.
//! - **mask afterwards**: a softmax over all keys, later ones set to zero, nothing divided again.
//! - **softcap**: c·tanh(s/c) of each score s, with c of 50, 30, 20, 10 or 5, or none where one is declared.

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
    if declared.softmax_axis != SoftmaxAxis::Keys {
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
        all.push(reading(name, twice(true)).smoothing(true));
        let name = "the mask applied after the softmax";
        all.push(reading(name, SoftmaxOverride::MaskedAfter));
    }
    all.extend(softcaps(known, declared.softcap));
    all
}

fn softcaps(known: &Known<'_>, declared: Option<f32>) -> Vec<Reading> {
    let with = |cap: Option<f32>| {
        let spec = known.with_blocks(|block| {
            if let Some(own) = block.own_mut() {
                own.attention.softcap = cap;
            }
        })?;
        let (name, advice) = match cap {
            Some(cap) => (
                format!("a softcap of {cap} on scores"),
                format!("--set softcap={cap}"),
            ),
            None => (
                "no softcap on scores".to_owned(),
                "--set softcap=none".to_owned(),
            ),
        };
        let reading = Reading::new(FAMILY.id, name, advice).with_attention(spec);
        let smooths = cap.is_some_and(|cap| declared.is_none_or(|declared| cap < declared));
        Some(reading.smoothing(smooths).local(IsLocal::InLayers))
    };
    let caps = [50.0, 30.0, 20.0, 10.0, 5.0].map(Some).into_iter();
    let none = declared.map(|_| None);
    caps.chain(none)
        .filter(|cap| *cap != declared)
        .filter_map(with)
        .collect()
}
