//! Arcee: Llama whose feed-forward layers have no gate, and the square of relu.

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("arcee", "Arcee", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    activation: ("hidden_act", "relu2"),
    mlp: MlpStore::Plain {
        up: "up_proj",
        down: "down_proj",
    },
    ..Recipe::llama()
});
