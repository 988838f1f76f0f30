//! Phi 3: Llama with fused projections, a window where one is stated, and long-context factors per pair.

use super::Family;
use super::reading::llama_like::{MlpStore, NormStyle, QkvStore, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("phi3", "Phi3", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    rotary_share: Some(1.0),
    yarn_is_long: true,
    qkv: QkvStore::Stacked,
    mlp: MlpStore::FusedGated,
    window: WindowRule::Always(None),
    ..Recipe::llama()
})
.with_once_wider_windows();
