//! CodeGen: GPT-J whose queries, values and keys stand in one tensor, in the four parts that it was trained in.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, gptj};

pub const FAMILY: Family = Family::own("codegen", "CodeGen", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    gptj::read_stored(checkpoint, reader, FAMILY.model_type, true)
}
