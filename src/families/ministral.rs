//! Ministral: Mistral whose windows hold for the layers that a list names.

use super::Family;
use super::reading::llama_like::Recipe;
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("ministral", "Ministral", || Recipe {
    window: WindowRule::ListedOrAlways(Some(4096)),
    ..Recipe::llama()
});
