//! CLIP's tower of pictures: a norm before the first block, a kernel without a bias. The last hidden states go through no norm; the one
//! that is stored is of the class token alone, for the embedding of a picture.

use attnscope_spec::Pooled;

use super::Family;
use super::reading::processor::Processor;
use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{BASE, OF_CLIP, Pictures, Reads, VitLike};

pub const FAMILY: Family = Family::seeing("clip_vision_model", "CLIPVisionModel", || LIKE)
    .with_tasks(TaskRules {
        picture: Pooled::MeanFrom,
        projection: Some(Projection::First {
            map: "visual_projection",
            norm: "post_layernorm",
        }),
        ..TaskRules::USUAL
    });

/// How CLIP embeds pictures.
pub(super) const PICTURES: Pictures = Pictures {
    kernel: "embeddings.patch_embedding.weight",
    has_bias: false,
    class: Some("embeddings.class_embedding"),
    distillation: None,
    registers: None,
    positions: Some("embeddings.position_embedding.weight"),
    resampled: None,
    norm: Some("pre_layrnorm"),
    size: 224,
    patch: 32,
    processor: Processor::CLIP,
};

/// CLIP's encoder of pictures.
pub(super) const LIKE: VitLike = VitLike {
    bases: &["vision_model.", ""],
    sizes: BASE,
    eps: 1e-5,
    activation: "quick_gelu",
    names: OF_CLIP,
    reads: Reads::Pictures(PICTURES),
    last_norm: None,
};
