//! StarCoder 2: Llama with layer norms, biases, an ungated feed-forward layer, and a window where one is stated.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("starcoder2", "Starcoder2", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("norm_epsilon"),
        eps: 1e-5,
        has_bias: true,
        ..RMS
    },
    qkv_bias: BIAS,
    o_bias: BIAS,
    mlp_bias: BIAS,
    mlp: MlpStore::Plain {
        up: "c_fc",
        down: "c_proj",
    },
    activation: ("hidden_act", "gelu_pytorch_tanh"),
    is_tied: true,
    window: WindowRule::Always(None),
    ..Recipe::llama()
})
.with_once_wider_windows();

const BIAS: BiasRule = BiasRule::Key("use_bias", true);
