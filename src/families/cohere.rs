//! Command R: side-by-side branches under one layer norm without bias, interleaved rotation, scaled logits.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{
    BiasRule, FactorRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
};

pub const FAMILY: Family = Family::decoder("cohere", "Cohere", || Recipe {
    theta: 500_000.0,
    qk_norm: QkNorm::OwnGainsIf("use_qk_norm"),
    ..of_both()
});

/// The recipe that Command R and Command R7B share.
pub(super) fn of_both() -> Recipe {
    Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("layer_norm_eps"),
            eps: 1e-5,
            ..RMS
        },
        norm_places: NormPlaces::Shared,
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        is_tied: true,
        logit_scale: FactorRule::Key("logit_scale", 0.0625),
        ..Recipe::llama()
    }
}
