//! TAPAS: BERT whose tokens also have places in a table; a text has none, and every kind of place is the first.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};

use super::reading::bert_like::{self, BertLike};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("tapas", "Tapas", read);

/// Numbers of segments, columns, rows and what else is known of a cell, if the configuration does not say.
const KINDS: [u64; 7] = [3, 256, 256, 2, 256, 256, 10];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KEY: &str = "type_vocab_sizes";
    let like = BertLike {
        has_token_types: false,
        may_decode: false,
        ..BertLike::plain("tapas.", bert::HEAD)
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    // Tokens of one cell are counted from its first; a text is one cell.
    reader.value("reset_position_index_per_cell");
    let kinds = reader.numbers(KEY)?.unwrap_or(KINDS.to_vec());
    if kinds.len() > checkpoint.tensors.len() || kinds.contains(&0) {
        let problem = format!("expected numbers from 1, found {kinds:?}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    let width = spec.d_model;
    let embed = &mut spec.stacks[0].embed;
    let at = embed
        .tokens
        .tensor
        .trim_end_matches("word_embeddings.weight");
    let constant = |(nth, n): (usize, u64)| ConstantRow {
        table: TableSource {
            tensor: format!("{at}token_type_embeddings_{nth}.weight"),
            n_rows: n as usize,
            width,
        },
        row: 0,
        columns: vec![0],
    };
    embed.constants = kinds.into_iter().enumerate().map(constant).collect();
    reader.remark("a text is not a table: every token is outside its rows and columns".to_owned());
    Ok(spec)
}
