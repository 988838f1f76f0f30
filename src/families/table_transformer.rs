//! Table Transformer: DETR with norms before branches.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::detr::{self, Like};

pub const FAMILY: Family =
    Family::own("table-transformer", "TableTransformer", read).leaving_unread(detr::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = Like {
        is_before: true,
        reads_decoder: true,
    };
    detr::read_like(FAMILY.model_type, checkpoint, reader, like)
}
