//! Norms of queries and keys.
//!
//! - **none** where the checkpoint has weights for them.
//! - **some** where it has none: each head's queries and keys divided by their root mean square, with the declared scale, and
//!   with none: a norm without weights leaves no trace in a checkpoint.

use attnscope_compute::attention::AttentionOverride;
use attnscope_compute::ops::NormKind;
use attnscope_forward::Deviation;
use attnscope_spec::{BlockSpec, NormSource};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "qk-norm",
    source: include_str!("qk_norm.rs"),
    readings,
};

/// Epsilon that such norms add to the mean square.
const EPS: f64 = 1e-6;

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let mut all_own = known.blocks().filter_map(BlockSpec::own);
    if all_own.any(|own| own.projections.q_norm.is_some()) {
        let none = known.with_blocks(|block| {
            if let Some(own) = block.own_mut() {
                (own.projections.q_norm, own.projections.k_norm) = (None, None);
            }
        });
        let reading = |spec| {
            let reading = Reading::new(FAMILY.id, "no QK-norm", "").with_weights(spec);
            reading.local(IsLocal::InLayers)
        };
        return none.map(reading).into_iter().collect();
    }
    let Some((declared, d_head)) = known.scale() else {
        return Vec::new();
    };
    let with = |kind: NormKind| {
        known.with_blocks(|block| {
            if let Some(own) = block
                .own_mut()
                .filter(|own| own.projections.latent.is_none())
            {
                let norm = NormSource::new(kind, EPS, own.attention.d_head, None);
                own.projections.q_norm = Some(norm.clone());
                own.projections.k_norm = Some(norm);
            }
        })
    };
    // Vectors of length 1 instead of √d: equal to an RMS norm with scores divided by d.
    let unit = 1.0 / d_head as f32 / declared;
    let named = [
        (
            "a QK-norm that is not in the configuration",
            NormKind::RmsNorm,
            1.0,
        ),
        ("a QK-norm and no scale", NormKind::RmsNorm, 1.0 / declared),
        ("queries and keys of length 1", NormKind::RmsNorm, unit),
        (
            "queries and keys of length 1 and no scale",
            NormKind::RmsNorm,
            unit / declared,
        ),
        ("a layer norm of queries and keys", NormKind::LayerNorm, 1.0),
    ];
    let reading = |(name, kind, scale): (&str, _, _)| {
        let attention = AttentionOverride {
            scale,
            ..AttentionOverride::NONE
        };
        let deviation = Deviation {
            attention,
            ..Deviation::NONE
        };
        let reading =
            Reading::new(FAMILY.id, name, "--what-if qk_norm=on").with_weights(with(kind)?);
        let mut reading = reading.deviating(deviation).local(IsLocal::InLayers);
        // Its gain may come only from the scale, which it shares with the reading that changes only the scale.
        if name.ends_with("and no scale") {
            reading.hypothesis.parts = vec![name.to_owned(), "no scale".to_owned()];
        }
        Some(reading)
    };
    named.into_iter().filter_map(reading).collect()
}
