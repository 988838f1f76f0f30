//! The text part of Kosmos-2.5: that of Kosmos-2 without the norm behind the heads; every token gets the embedding of text segments.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};

use super::opt::{OptLike, read_as};
use super::{Family, kosmos_2_text_model};

pub const FAMILY: Family = Family::own("kosmos_2_5_text_model", "Kosmos2_5Text", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = OptLike {
        inner_norms: [None, Some("ffn.ffn_layernorm")],
        ..kosmos_2_text_model::like(FAMILY.model_type)
    };
    let mut spec = read_as(checkpoint, reader, like)?;
    let width = spec.d_model;
    let embed = &mut spec.stacks[0].embed;
    let base = embed.tokens.tensor.trim_end_matches("embed_tokens.weight");
    // The first row is that of text, the second that of pictures.
    embed.constants.push(ConstantRow {
        table: TableSource {
            tensor: format!("{base}segment_emb.weight"),
            n_rows: 2,
            width,
        },
        row: 0,
        columns: vec![0],
    });
    Ok(spec)
}
