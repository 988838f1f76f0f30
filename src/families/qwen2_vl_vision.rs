//! Qwen2-VL's tower of pictures: patches of a picture of any size turn by row and column. A picture is two equal frames of a
//! video, and no learned token stands before it.

use super::reading::processor::Processor;
use super::reading::vit_like::{
    KEYS_OF_QWEN, Kernel, Keys, MlpKey, OF_QWEN, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing(
    "qwen2_vl_vision",
    "Qwen2VisionTransformerPretrainedModel",
    || VitLike {
        sizes: Sizes {
            d_model: 1280,
            d_mlp: 5120,
            n_layers: 32,
            n_heads: 16,
        },
        keys: Keys {
            d_model: "embed_dim",
            d_mlp: MlpKey::Ratio("mlp_ratio"),
            aside: &["hidden_size"],
            ..KEYS_OF_QWEN
        },
        activation: "quick_gelu",
        ..LIKE
    },
);

/// How Qwen2-VL embeds pictures.
pub(super) const PICTURES: Pictures = Pictures {
    kernel: "patch_embed.proj.weight",
    form: Kernel::Video("temporal_patch_size", 2),
    has_bias: None,
    class: None,
    positions: None,
    turn: Some(Turn::PLAIN),
    merged: Some(("spatial_merge_size", 2)),
    patch: 14,
    processor: Processor::QWEN,
    ..vit::PICTURES
};

/// What the towers of Qwen-VL have in common.
pub(super) const LIKE: VitLike = VitLike {
    keys: KEYS_OF_QWEN,
    eps: 1e-6,
    names: OF_QWEN,
    reads: Reads::Pictures(PICTURES),
    last_norm: None,
    ..vit::like(&["", "visual.", "model.visual."])
};
