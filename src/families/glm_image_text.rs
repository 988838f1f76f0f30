//! The text part of GLM-Image: that of GLM-4.1V, rotated by halves.

use super::reading::llama_like::{BiasRule, Recipe};
use super::{Family, glm4v_text};

pub const FAMILY: Family = Family::decoder("glm_image_text", "GlmImageText", || Recipe {
    interleaved: false,
    qkv_bias: BiasRule::Key("attention_bias", true),
    ..glm4v_text::recipe()
});
