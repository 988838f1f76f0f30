//! OWL-ViT's tower of pictures: CLIP's.

use super::reading::processor::Processor;
use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, clip_vision_model};

pub const FAMILY: Family = Family::seeing("owlvit_vision_model", "OwlViTVisionModel", || VitLike {
    bases: &["owlvit.vision_model.", "vision_model.", ""],
    reads: Reads::Pictures(Pictures {
        norm: Some("pre_layernorm"),
        size: 768,
        processor: Processor::OWL,
        patch: 32,
        ..clip_vision_model::PICTURES
    }),
    ..clip_vision_model::LIKE
});
