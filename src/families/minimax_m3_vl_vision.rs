//! MiniMax M3's tower of pictures: CLIP's blocks over patches that turn by time, row and column; a picture is one moment.

use attnscope_compute::attention::GridFrequencies;

use super::reading::vit_like::{
    Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, clip_vision_model, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing("minimax_m3_vl_vision", "MiniMaxM3VLVisionModel", || {
    VitLike {
        bases: &["", "vision_tower.", "model.vision_tower."],
        sizes: Sizes {
            d_model: 1280,
            d_mlp: 5120,
            n_layers: 32,
            n_heads: 16,
        },
        keys: Keys {
            aside: &["rope_theta"],
            ..OF_MOST
        },
        activation: "gelu",
        names: Names {
            layers: "layers",
            ..OF_CLIP
        },
        reads: Reads::Pictures(Pictures {
            kernel: "embeddings.proj.weight",
            has_bias: Some(false),
            turn: Some(Turn {
                frequencies: GridFrequencies::BehindTime,
                ..Turn::PLAIN
            }),
            norm: Some("pre_layrnorm"),
            ..qwen2_vl_vision::PICTURES
        }),
        ..clip_vision_model::LIKE
    }
});
