//! UMT5: mT5 with a learned bias by distance in every layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::t5::{self, T5Like};

pub const FAMILY: Family = Family::own("umt5", "UMT5", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = T5Like {
        family: FAMILY.model_type,
        feed_forward: ("feed_forward_proj", "gated-gelu"),
        has_bias_by_layer: true,
        ..T5Like::PLAIN
    };
    t5::read_as(checkpoint, reader, like)
}
