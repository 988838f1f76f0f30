//! What multiplied q·k.
//!
//! - **1/√d_head**, **none**, **1/d_head**, **1/√d_model**: other than what is declared.
//! - **the declared factor twice**: scaled once in the projection and once in the scores.
//! - **×2** and **×½** of what is declared.
//!
//! Smoother attention helps every broken model, so a smaller scale is believed only if no other reading comes near.

use attnscope_compute::attention::AttentionOverride;

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "scale",
    source: include_str!("scale.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let Some((declared, d_head)) = known.scale() else {
        return Vec::new();
    };
    let (d, d_model) = (d_head as f32, known.spec().d_model as f32);
    let candidates = [
        ("no scale", "--set scale=none", 1.0),
        (
            "a scale of 1/sqrt(d_head)",
            "--set scale=inv_sqrt_d",
            d.sqrt().recip(),
        ),
        ("a scale of 1/d_head", "--set scale=inv_d", d.recip()),
        ("a scale of 1/sqrt(d_model)", "", d_model.sqrt().recip()),
        ("the scale applied twice", "", declared * declared),
        ("twice the scale", "", 2.0 * declared),
        ("half the scale", "", 0.5 * declared),
    ];
    let mut tried = vec![1.0f32];
    let mut all = Vec::new();
    for (name, advice, factor) in candidates {
        let times = factor / declared;
        if !times.is_finite() || tried.iter().any(|known| (known / times - 1.0).abs() < 1e-3) {
            continue;
        }
        tried.push(times);
        let odd = AttentionOverride {
            scale: times,
            ..AttentionOverride::NONE
        };
        let advice = if advice.is_empty() {
            format!("--set scale={factor}")
        } else {
            advice.to_owned()
        };
        all.push(
            Reading::new(FAMILY.id, name, advice)
                .odd(odd)
                .smoothing(times < 1.0)
                .local(IsLocal::InLayers),
        );
    }
    all
}
