//! GLM-OCR's tower of pictures: GLM-4V's without learned positions, with norms of the queries and keys of each head.

use super::reading::vit_like::{KEYS_OF_QWEN, Keys, Names, Sizes, VitLike};
use super::{Family, glm4v_vision};

pub const FAMILY: Family = Family::seeing("glm_ocr_vision", "GlmOcrVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        aside: &["out_hidden_size", "attention_bias"],
        ..KEYS_OF_QWEN
    },
    names: Names {
        head_norms: Some(["attn.q_norm", "attn.k_norm"]),
        ..glm4v_vision::LIKE.names
    },
    ..glm4v_vision::LIKE
});
