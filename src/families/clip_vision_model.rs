//! CLIP's tower of pictures: a norm before the first block, a kernel without a bias. The last hidden states go through no norm; the one
//! that is stored is of the class token alone, for the embedding of a picture.

use attnscope_spec::Pooled;

use super::reading::processor::Processor;
use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{OF_CLIP, Pictures, Reads, VitLike};
use super::{Family, vit};

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
    has_bias: Some(false),
    class: Some("embeddings.class_embedding"),
    positions: Some("embeddings.position_embedding.weight"),
    norm: Some("pre_layrnorm"),
    patch: 32,
    processor: Processor::CLIP,
    ..vit::PICTURES
};

/// CLIP's encoder of pictures.
pub(super) const LIKE: VitLike = VitLike {
    eps: 1e-5,
    activation: "quick_gelu",
    names: OF_CLIP,
    reads: Reads::Pictures(PICTURES),
    last_norm: None,
    ..vit::like(&["vision_model.", ""])
};
