//! LayoutLM: BERT whose tokens also have boxes on a page; a text has none, which is read as boxes of zeros.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};

use super::reading::bert_like::{self, BertLike};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("layoutlm", "LayoutLM", read);

/// Said of every model whose boxes are zeros.
pub(super) const NO_BOXES: &str =
    "a text has no boxes on a page: every token has the box 0, 0, 0, 0";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        may_decode: false,
        ..BertLike::plain("layoutlm.", bert::HEAD)
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let n_rows = n_places(reader)?;
    let width = spec.d_model;
    let constant = |table, columns| row(&spec, table, (n_rows, width), columns);
    // Both edges of a box are looked up in the same table.
    let constants = vec![
        constant("x", vec![0, 0]),
        constant("y", vec![0, 0]),
        constant("h", vec![0]),
        constant("w", vec![0]),
    ];
    spec.stacks[0].embed.constants = constants;
    reader.remark(NO_BOXES.to_owned());
    Ok(spec)
}

/// The number of places along a side of a page.
///
/// # Errors
/// When it is impossible.
pub(super) fn n_places(reader: &mut Reader<'_>) -> Result<usize> {
    const KEY: &str = "max_2d_position_embeddings";
    reader.size_or("box_places", KEY, 1024, Origin::Default(KEY.to_owned()))
}

/// The row of a table of places that every token gets.
pub(super) fn row(
    spec: &ModelSpec,
    table: &str,
    (n_rows, width): (usize, usize),
    columns: Vec<usize>,
) -> ConstantRow {
    let words = &spec.stacks[0].embed.tokens.tensor;
    let at = words.trim_end_matches("word_embeddings.weight");
    let tensor = format!("{at}{table}_position_embeddings.weight");
    let table = TableSource {
        tensor,
        n_rows,
        width,
    };
    ConstantRow {
        table,
        row: 0,
        columns,
    }
}
