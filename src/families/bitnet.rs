//! BitNet: Llama with norms inside both branches, before the output map and before the down projection.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("bitnet", "BitNet", || Recipe {
    theta: 500_000.0,
    norm: NormStyle { eps: 1e-5, ..RMS },
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    activation: ("hidden_act", "relu2"),
    sub_norms: Some(["attn_sub_norm", "ffn_sub_norm"]),
    ..Recipe::llama()
});
