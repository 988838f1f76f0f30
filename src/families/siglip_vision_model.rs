//! SigLIP's tower of pictures: patches alone, no learned token before them. Its head, which looks at all patches from one learned query, is
//! read where the class makes one vector of a picture.

use attnscope_spec::Pooled;

use super::reading::processor::Processor;
use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{Keys, OF_CLIP, OF_MOST, Pictures, Reads, VitLike};
use super::{Family, clip_vision_model, vit};

pub const FAMILY: Family = Family::seeing("siglip_vision_model", "SiglipVisionModel", || LIKE)
    .with_tasks(TaskRules {
        picture: Pooled::MeanFrom,
        projection: Some(Projection::ByAttention { at: "head" }),
        ..TaskRules::USUAL
    });

/// How SigLIP embeds pictures.
pub(super) const PICTURES: Pictures = Pictures {
    has_bias: Some(true),
    class: None,
    norm: None,
    patch: 16,
    processor: Processor::SIGLIP,
    ..clip_vision_model::PICTURES
};

/// SigLIP's encoder of pictures.
pub(super) const LIKE: VitLike = VitLike {
    keys: Keys {
        aside: &["vision_use_head"],
        ..OF_MOST
    },
    eps: 1e-6,
    activation: "gelu_pytorch_tanh",
    names: OF_CLIP,
    reads: Reads::Pictures(PICTURES),
    last_norm: Some("post_layernorm"),
    ..vit::like(&["vision_model.", ""])
};
