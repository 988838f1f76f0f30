//! EXAONE 4: OLMo 2 with norms of heads, windows on three layers of four, and rotation only there.

use super::Family;
use super::reading::llama_like::{NormPlaces, NormStyle, QkNorm, RMS, Recipe, RopeLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("exaone4", "Exaone4", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    norm_places: NormPlaces::Output,
    qk_norm: QkNorm::Head,
    rope_layers: RopeLayers::WindowedUnlessNull("sliding_window"),
    window: WindowRule::AllButUnlessNull {
        every: 4,
        every_key: "sliding_window_pattern",
        width: 4096,
    },
    ..Recipe::llama()
});
