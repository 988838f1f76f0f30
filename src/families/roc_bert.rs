//! RoCBert: BERT of Chinese, whose tokens also have a shape and a sound; of a text without them, those of the first.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};

use super::reading::bert_like::{self, BertLike};
use super::reading::linear;
use super::{Family, bert};

pub const FAMILY: Family = Family::own("roc_bert", "RoCBert", read).leaving_unread(&[
    // Read where a row of every token stands beside words, and not added to them otherwise.
    "shape_embed.weight",
    "pronunciation_embed.weight",
]);

/// What stands beside a word.
struct Beside {
    /// The switch.
    on: &'static str,
    /// Keys of the number of rows and of their width, and their defaults.
    rows: (&'static str, usize),
    width: (&'static str, usize),
    table: &'static str,
}

const BESIDE: [Beside; 2] = [
    Beside {
        on: "enable_shape",
        rows: ("shape_vocab_size", 24_858),
        width: ("shape_embed_dim", 512),
        table: "shape_embed",
    },
    Beside {
        on: "enable_pronunciation",
        rows: ("pronunciation_vocab_size", 910),
        width: ("pronunciation_embed_dim", 768),
        table: "pronunciation_embed",
    },
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike::plain("roc_bert.", bert::HEAD);
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let is_joined = reader.flag_or("joins_inputs", "concat_input", true)?;
    let d_model = spec.d_model;
    let embed = &mut spec.stacks[0].embed;
    let words = embed.tokens.tensor.clone();
    let at = words.trim_end_matches("word_embeddings.weight");
    let mut width = d_model;
    for beside in BESIDE {
        let mut size = |(key, n): (&'static str, usize)| {
            reader.size_or(key, key, n, Origin::Default(key.to_owned()))
        };
        let (n_rows, n) = (size(beside.rows)?, size(beside.width)?);
        let is_on = reader.flag_or(beside.on, beside.on, true)?;
        let table = beside.table;
        if is_on && is_joined {
            embed.constants.push(ConstantRow {
                table: TableSource {
                    tensor: format!("{at}{table}.weight"),
                    n_rows,
                    width: n,
                },
                row: 0,
                columns: vec![width],
            });
            width += n;
        }
    }
    if is_joined {
        let name = format!("{at}map_inputs_layer");
        embed.projection = Some(linear(&name, width, d_model, true));
        embed.projects_first = true;
    }
    reader.remark("a text is read without the shapes and sounds of its tokens".to_owned());
    Ok(spec)
}
