//! Mistral: Llama with a window on every layer, where one is stated.

use super::Family;
use super::reading::llama_like::Recipe;
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("mistral", "Mistral", || Recipe {
    window: WindowRule::Always(Some(4096)),
    ..Recipe::llama()
})
.with_once_wider_windows();
