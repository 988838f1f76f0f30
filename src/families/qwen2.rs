//! Qwen2: Llama with biases of queries, keys and values; windows from some layer on, where they are switched on.

use super::Family;
use super::reading::llama_like::{BiasRule, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("qwen2", "Qwen2", || Recipe {
    qkv_bias: BiasRule::Always,
    window: WindowRule::From("max_window_layers", 28),
    ..Recipe::llama()
})
.with_once_wider_windows();
