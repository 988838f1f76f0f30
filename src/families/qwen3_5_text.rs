//! The text part of Qwen3.5: Qwen3-Next without experts, with separate maps for the parts of the delta rule.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::delta::DeltaStore;
use super::{Family, qwen3_next};

pub const FAMILY: Family = Family::own("qwen3_5_text", "Qwen3_5", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let family = FAMILY.model_type;
    qwen3_next::read_as(family, checkpoint, reader, (None, DeltaStore::ByKind))
}
