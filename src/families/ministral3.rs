//! Ministral 3: Mistral whose queries grow far into a text.

use super::Family;
use super::reading::llama_like::{NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("ministral3", "Ministral3", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    d_head: Some(128),
    window: WindowRule::Always(None),
    scales_with_position: true,
    requires_rope_parameters: true,
    ..Recipe::llama()
});
