//! StableLM: Llama with layer norms, a quarter of each head rotating, and side-by-side branches where they are switched on.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{BiasRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("stablelm", "StableLm", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("layer_norm_eps"),
        eps: 1e-5,
        has_bias: true,
        ..RMS
    },
    norm_places: NormPlaces::SharedIf("use_parallel_residual"),
    qk_norm: QkNorm::ListedGainsIf("qk_layernorm"),
    qkv_bias: BiasRule::Key("use_qkv_bias", false),
    rotary_share: Some(0.25),
    ..Recipe::llama()
});
