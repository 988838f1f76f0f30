//! DeBERTa: BERT whose scores have learned vectors of distances beside content, projections fused by heads.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::deberta_like::{self, DebertaLike};

pub const FAMILY: Family = Family::own("deberta", "Deberta", read).with_tasks(deberta_like::TASKS);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = DebertaLike {
        family: FAMILY.model_type,
        is_fused: true,
        is_second: false,
        maps: ["pos_proj", "pos_q_proj"],
    };
    deberta_like::read(checkpoint, reader, like)
}
