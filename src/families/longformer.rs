//! Longformer: RoBERTa whose tokens see a window to both sides; some classes let some tokens see all others.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::reading::global_tokens;
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("longformer", "Longformer", read);

const LIKE: BertLike = BertLike {
    window: Some("attention_window"),
    may_decode: false,
    ..roberta::like("longformer.")
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    global_tokens::settle(reader, &mut spec.stacks[0], true)?;
    Ok(spec)
}
