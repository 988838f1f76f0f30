//! mT5: T5 1.1 with a vocabulary of a hundred languages.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::t5::{self, T5Like};
use super::versions::saved_by;

pub const FAMILY: Family = Family::own("mt5", "MT5", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Version 5 of transformers treats every head of this kind as tied, and scales none.
    let version = saved_by(reader.value("transformers_version"));
    let like = T5Like {
        family: FAMILY.model_type,
        feed_forward: ("feed_forward_proj", "gated-gelu"),
        scales_tied: version.is_none_or(|version| version < (5, 0)),
        ..T5Like::PLAIN
    };
    t5::read_as(checkpoint, reader, like)
}
