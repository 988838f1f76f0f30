//! Molmo 2's tower of pictures: SigLIP's, whose kernel is a matrix over rows, columns and channels, and whose last hidden states go through
//! no norm.

use super::reading::vit_like::{
    Biases, Kernel, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family = Family::seeing("molmo2_vision", "Molmo2VisionModel", || VitLike {
    bases: &["", "vision_tower.", "model.vision_tower."],
    sizes: Sizes {
        d_model: 1152,
        d_mlp: 4304,
        n_layers: 25,
        n_heads: 16,
    },
    keys: Keys {
        n_kv_heads: Some(("num_key_value_heads", 16)),
        aside: &["head_dim", "num_position_embeddings", "attention_bias"],
        ..OF_MOST
    },
    names: Names {
        layers: "layers",
        o: "self_attn.o_proj",
        biases: Biases::Stored,
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patch_embedding.weight",
        form: Kernel::FlatChannelsLast,
        positions: Some("positional_embedding"),
        size: 378,
        patch: 14,
        ..siglip_vision_model::PICTURES
    }),
    last_norm: None,
    ..siglip_vision_model::LIKE
});
