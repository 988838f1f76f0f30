//! DeBERTa V2 and V3: DeBERTa whose long distances share vectors, made by the maps of queries and keys where they are shared.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::deberta_like::{self, DebertaLike};

pub const FAMILY: Family =
    Family::own("deberta-v2", "DebertaV2", read).with_tasks(deberta_like::TASKS);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = DebertaLike {
        family: FAMILY.model_type,
        is_fused: false,
        is_second: true,
        maps: ["pos_key_proj", "pos_query_proj"],
    };
    deberta_like::read(checkpoint, reader, like)
}
