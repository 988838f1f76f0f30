//! BLIP's tower of pictures: ViT with one matrix for queries, keys and values.

use super::Family;
use super::reading::processor::Processor;
use super::reading::vit_like::{BASE, Names, OF_CLIP, Pictures, Reads, VitLike};

pub const FAMILY: Family = Family::seeing("blip_vision_model", "BlipVisionModel", || VitLike {
    bases: &["vision_model.", ""],
    sizes: BASE,
    eps: 1e-5,
    activation: "gelu",
    names: Names {
        qkv: Some("self_attn.qkv"),
        o: "self_attn.projection",
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.patch_embedding.weight",
        has_bias: true,
        class: Some("embeddings.class_embedding"),
        distillation: None,
        registers: None,
        positions: Some("embeddings.position_embedding"),
        resampled: None,
        norm: None,
        size: 384,
        patch: 16,
        processor: Processor::BLIP,
    }),
    last_norm: Some("post_layernorm"),
});
