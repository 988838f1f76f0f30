//! BLIP's tower of pictures: ViT with one matrix for queries, keys and values.

use super::reading::processor::Processor;
use super::reading::vit_like::{Names, OF_CLIP, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("blip_vision_model", "BlipVisionModel", || VitLike {
    eps: 1e-5,
    names: Names {
        qkv: Some("self_attn.qkv"),
        o: "self_attn.projection",
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.patch_embedding.weight",
        class: Some("embeddings.class_embedding"),
        positions: Some("embeddings.position_embedding"),
        size: 384,
        processor: Processor::BLIP,
        ..vit::PICTURES
    }),
    last_norm: Some("post_layernorm"),
    ..vit::like(&["vision_model.", ""])
});
