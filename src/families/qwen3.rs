//! Qwen3: Llama with norms of each head's queries and keys.

use super::Family;
use super::reading::llama_like::{BiasRule, QkNorm, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("qwen3", "Qwen3", || Recipe {
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    qk_norm: QkNorm::Head,
    window: WindowRule::From("max_window_layers", 28),
    d_head: Some(128),
    ..Recipe::llama()
});
