//! SigLIP 2's tower of pictures: SigLIP's over patches of any picture, whose positions are resampled to its grid.

use attnscope_spec::Resampling;

use super::reading::vit_like::{Count, Kernel, Keys, OF_MOST, Pictures, Reads, VitLike};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family =
    Family::seeing("siglip2_vision_model", "Siglip2VisionModel", || VitLike {
        keys: Keys {
            aside: &["vision_use_head", "spatial_merge_size"],
            ..OF_MOST
        },
        reads: Reads::Pictures(Pictures {
            form: Kernel::FlatChannelsLast,
            places: Count::Square("num_patches", 256),
            resampled: Some(Resampling::LinearAntialiased),
            ..siglip_vision_model::PICTURES
        }),
        ..siglip_vision_model::LIKE
    });
