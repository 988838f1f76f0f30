//! ERNIE 4.5-VL's tower of pictures: Qwen2-VL's, of single frames, with a norm after the last block.

use super::reading::vit_like::{KEYS_OF_QWEN, Kernel, Keys, Pictures, Reads, Sizes, VitLike};
use super::{Family, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing(
    "ernie4_5_vl_moe_vision",
    "Ernie4_5_VLMoeVisionTransformerPretrainedModel",
    || VitLike {
        sizes: Sizes {
            d_model: 1280,
            d_mlp: 5120,
            n_layers: 32,
            n_heads: 16,
        },
        keys: Keys {
            eps: Some("rms_norm_eps"),
            aside: &["temporal_merge_size"],
            ..KEYS_OF_QWEN
        },
        activation: "quick_gelu",
        reads: Reads::Pictures(Pictures {
            form: Kernel::Flat,
            ..qwen2_vl_vision::PICTURES
        }),
        last_norm: Some("ln"),
        ..qwen2_vl_vision::LIKE
    },
);
