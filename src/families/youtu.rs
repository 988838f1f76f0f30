//! Youtu-LLM: DeepSeek V3's attention without experts.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::latent::{self, LatentLike};

pub const FAMILY: Family = Family::own("youtu", "Youtu", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = LatentLike {
        is_dense: true,
        interleaves: Some("rope_interleave"),
        is_tied: true,
        ..LatentLike::PLAIN
    };
    latent::read(FAMILY.model_type, checkpoint, reader, like)
}
