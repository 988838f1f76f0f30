//! CodeGen: GPT-J whose queries, values and keys stand in one tensor, in the four parts that it was trained in.

use super::{Family, gptj};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::spec::ModelSpec;

pub const FAMILY: Family = Family::own("codegen", "CodeGen", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    gptj::read_stored(checkpoint, reader, FAMILY.model_type, true)
}
