//! VideoLLaMA 3's tower of pictures: SigLIP's without learned positions: patches of a picture of any size turn by row and column.

use super::reading::processor::Processor;
use super::reading::vit_like::{Pictures, Reads, Turn, VitLike};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family = Family::seeing("video_llama_3_vision", "VideoLlama3VisionModel", || {
    VitLike {
        reads: Reads::Pictures(Pictures {
            positions: None,
            turn: Some(Turn::PLAIN),
            merged: Some(("spatial_merge_size", 2)),
            processor: Processor::SIGLIP.in_multiples(),
            ..siglip_vision_model::PICTURES
        }),
        ..siglip_vision_model::LIKE
    }
});
