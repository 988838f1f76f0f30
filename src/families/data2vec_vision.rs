//! Data2Vec of pictures: BEiT.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, beit};

pub const FAMILY: Family = Family::own("data2vec-vision", "Data2VecVision", read)
    .with_tasks(beit::TASKS)
    .leaving_unread(beit::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let bases: &[&str] = &["data2vec_vision.", ""];
    beit::read_as(checkpoint, reader, (FAMILY.model_type, bases, None))
}
