//! The text part of GLM-4.1V: GLM 4, whose share of rotating dimensions is stated.

use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};
use super::{Family, glm4};

pub const FAMILY: Family = Family::decoder("glm4v_text", "Glm4vText", recipe);

/// How the text parts of GLM-4.1V and GLM-OCR differ from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        rotary_share: Some(1.0),
        qkv_bias: BiasRule::Always,
        d_head: None,
        ..glm4::recipe()
    }
}
