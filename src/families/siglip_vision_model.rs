//! SigLIP's tower of pictures: patches alone, no learned token before them. Its head, which looks at all patches from one learned query, is
//! read where the class makes one vector of a picture.

use attnscope_spec::Pooled;

use super::reading::processor::Processor;
use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{BASE, OF_CLIP, Pictures, Reads, VitLike};
use super::{Family, clip_vision_model};

pub const FAMILY: Family = Family::seeing("siglip_vision_model", "SiglipVisionModel", || VitLike {
    bases: &["vision_model.", ""],
    sizes: BASE,
    eps: 1e-6,
    activation: "gelu_pytorch_tanh",
    names: OF_CLIP,
    reads: Reads::Pictures(Pictures {
        has_bias: true,
        class: None,
        norm: None,
        patch: 16,
        processor: Processor::SIGLIP,
        ..clip_vision_model::PICTURES
    }),
    last_norm: Some("post_layernorm"),
})
.with_tasks(TaskRules {
    picture: Pooled::MeanFrom,
    projection: Some(Projection::ByAttention { at: "head" }),
    ..TaskRules::USUAL
});
