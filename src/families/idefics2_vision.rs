//! Idefics2's tower of pictures: SigLIP's, where a picture of another size has the positions of the bins that its patches lie in.

use attnscope_spec::Resampling;

use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family =
    Family::seeing("idefics2_vision", "Idefics2VisionTransformer", || VitLike {
        reads: Reads::Pictures(Pictures {
            resampled: Some(Resampling::Bins),
            patch: 32,
            ..siglip_vision_model::PICTURES
        }),
        ..siglip_vision_model::LIKE
    });
