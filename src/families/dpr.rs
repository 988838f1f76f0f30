//! DPR: BERT as an encoder of questions or of passages; each is a model of its own.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::{Family, bert};

pub const FAMILY: Family =
    Family::own("dpr", "DPR", read).leaving_unread(&["encode_proj.weight", "encode_proj.bias"]);

/// What the three classes call the BERT inside.
const BASES: [&str; 3] = [
    "question_encoder.bert_model.",
    "ctx_encoder.bert_model.",
    "span_predictor.encoder.bert_model.",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let probe = "embeddings.word_embeddings.weight";
    let base = super::reading::prefix(&checkpoint.tensors, &BASES, probe);
    let like = BertLike {
        may_decode: false,
        ..BertLike::plain(base, bert::HEAD)
    };
    let spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let width = reader.count_or("projection", "projection_dim", 0)?;
    if width > 0 {
        reader.remark(format!(
            "encode_proj maps the first state to {width} values: attnscope stops before it"
        ));
    }
    Ok(spec)
}
