//! The patcher of the Byte Latent Transformer: a small Llama over bytes, with interleaved rotation.

use super::Family;
use super::reading::llama_like::{NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("blt_patcher", "BltPatcher", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    interleaved: true,
    window: WindowRule::Always(Some(512)),
    ..Recipe::llama()
});
