//! The text part of GLM-OCR: that of GLM-4.1V without biases.

use super::reading::llama_like::{BiasRule, Recipe};
use super::{Family, glm4v_text};

pub const FAMILY: Family = Family::decoder("glm_ocr_text", "GlmOcrText", || Recipe {
    qkv_bias: BiasRule::Never,
    ..glm4v_text::recipe()
});
