//! PaddleOCR-VL's tower of pictures: SigLIP's, whose patches turn by row and column too, and whose positions are resampled.

use attnscope_spec::Resampling;

use super::reading::processor::Processor;
use super::reading::vit_like::{Pictures, Reads, Sizes, Turn, VitLike};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family =
    Family::seeing("paddleocr_vl_vision", "PaddleOCRVisionModel", || VitLike {
        sizes: Sizes {
            d_model: 1152,
            d_mlp: 4304,
            n_layers: 27,
            n_heads: 16,
        },
        reads: Reads::Pictures(Pictures {
            resampled: Some(Resampling::Linear),
            turn: Some(Turn::PLAIN),
            merged: Some(("spatial_merge_size", 2)),
            size: 384,
            patch: 14,
            processor: Processor::SIGLIP.in_multiples(),
            ..siglip_vision_model::PICTURES
        }),
        ..siglip_vision_model::LIKE
    });
