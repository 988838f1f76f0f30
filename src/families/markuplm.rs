//! MarkupLM: RoBERTa's positions, and for each token the path to it in a page; a text has none, which is read as paths of padding.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{MadePart, MadeRow, ModelSpec, TableSource};

use super::reading::bert_like::{self, BertLike};
use super::reading::linear;
use super::{Family, bert, roberta};

/// A map of paths is stored that nothing reads.
pub const FAMILY: Family = Family::own("markuplm", "MarkupLM", read).leaving_unread(&[
    "xpath_unitseq2_embeddings.weight",
    "xpath_unitseq2_embeddings.bias",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let states_padding = reader.value("pad_token_id").is_some();
    let like = BertLike {
        may_decode: false,
        pad: (!states_padding).then_some(0),
        head: bert::HEAD,
        ..roberta::like("markuplm.")
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let words = &spec.stacks[0].embed.tokens.tensor;
    let base = words.trim_end_matches("word_embeddings.weight");
    let at = format!("{base}xpath_embeddings");
    let made = path(reader, checkpoint.tensors.len(), (&at, spec.d_model))?;
    spec.stacks[0].embed.made = Some(Box::new(made));
    reader.remark(
        "a text has no paths in a page: every token has a path of padding alone".to_owned(),
    );
    Ok(spec)
}

/// The row of a path of padding: of each of its steps, the padding of tags and that of numbers.
fn path(
    reader: &mut Reader<'_>,
    n_tensors: usize,
    (at, d_model): (&str, usize),
) -> Result<MadeRow> {
    const DEPTH: &str = "max_depth";
    let mut size = |key: &'static str, default| {
        reader.size_or(key, key, default, Origin::Default(key.to_owned()))
    };
    let n_steps = size(DEPTH, 50)?;
    let width = size("xpath_unit_hidden_size", 32)?;
    let n_tags = size("max_xpath_tag_unit_embeddings", 256)?;
    let n_numbers = size("max_xpath_subs_unit_embeddings", 1024)?;
    if 2 * n_steps > n_tensors {
        let problem = format!(
            "{n_steps} steps have more tables than the {n_tensors} tensors that are stored"
        );
        return Err(Error::config(reader.path(), DEPTH, problem));
    }
    let mut kinds = Vec::new();
    for (name, key, default, n_rows) in [
        ("xpath_tag_sub_embeddings", "tag_pad_id", 216, n_tags),
        ("xpath_subs_sub_embeddings", "subs_pad_id", 1001, n_numbers),
    ] {
        let row = reader.count_or(key, key, default)?;
        if row >= n_rows {
            let problem = format!("expected one of {n_rows} rows, found {row}");
            return Err(Error::config(reader.path(), key, problem));
        }
        kinds.push((name, row, n_rows));
    }
    let part = |step: usize, (name, row, n_rows): (&str, usize, usize)| MadePart {
        table: TableSource {
            tensor: format!("{at}.{name}.{step}.weight"),
            n_rows,
            width,
        },
        row,
        column: step * width,
    };
    let parts = (0..n_steps).flat_map(|step| kinds.iter().map(move |kind| (step, *kind)));
    let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
    Ok(MadeRow {
        parts: parts.map(|(step, kind)| part(step, kind)).collect(),
        up: map("xpath_unitseq2_inner", n_steps * width, 4 * d_model),
        activation: Activation::Relu,
        down: map("inner2emb", 4 * d_model, d_model),
    })
}
