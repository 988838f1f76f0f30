//! GIT's tower of pictures: CLIP's, with a norm after the last block.

use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, clip_vision_model};

pub const FAMILY: Family = Family::seeing("git_vision_model", "GitVisionModel", || VitLike {
    reads: Reads::Pictures(Pictures {
        patch: 16,
        ..clip_vision_model::PICTURES
    }),
    last_norm: Some("post_layernorm"),
    ..clip_vision_model::LIKE
});
