//! GLM-Image's tower of pictures: ViT with Qwen2-VL's names, whose learned positions are resampled to the grid of a picture.

use attnscope_spec::Resampling;

use super::reading::vit_like::{KEYS_OF_QWEN, Kernel, Keys, Pictures, Reads, Sizes, VitLike};
use super::{Family, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing("glm_image_vision", "GlmImageVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 6144,
        n_layers: 40,
        n_heads: 16,
    },
    keys: Keys {
        eps: Some("layer_norm_eps"),
        aside: &["attention_bias"],
        ..KEYS_OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        form: Kernel::Picture,
        positions: Some("embeddings.position_embedding.weight"),
        resampled: Some(Resampling::Linear),
        turn: None,
        merged: Some(("spatial_merge_size", 1)),
        size: 2048,
        patch: 16,
        ..qwen2_vl_vision::PICTURES
    }),
    activation: "gelu",
    ..qwen2_vl_vision::LIKE
});
