//! Janus's tower of pictures: SigLIP's, with a stated ratio of widths.

use super::reading::vit_like::{
    Biases, Keys, MlpKey, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family = Family::seeing("janus_vision_model", "JanusVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        aside: &[
            "attention_bias",
            "projection_dim",
            "depth",
            "num_image_tokens",
        ],
        off: &["use_qk_norm"],
        ..OF_MOST
    },
    activation: "gelu",
    names: Names {
        o: "self_attn.projection_layer",
        biases: Biases::Stored,
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        size: 384,
        ..siglip_vision_model::PICTURES
    }),
    ..siglip_vision_model::LIKE
});
