//! Command R7B: Command R with windows on three layers of four, and no rotation on the fourth.

use super::Family;
use super::cohere::of_both;
use super::reading::llama_like::{Recipe, RopeLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("cohere2", "Cohere2", || Recipe {
    rope_layers: RopeLayers::Windowed,
    window: WindowRule::AllBut {
        every: 4,
        every_key: Some("sliding_window_pattern"),
        width: 4096,
    },
    ..of_both()
});
