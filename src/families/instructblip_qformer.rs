//! InstructBLIP's Q-Former on a text alone: BERT without segments. What its learned queries take from a picture is left out.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike, Names};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("instructblip_qformer", "InstructBlipQFormer", read)
    .leaving_unread(&["crossattention.*", "intermediate_query.*", "output_query.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        embed_norm: Some("embeddings.layernorm"),
        has_token_types: false,
        names: Names {
            q: "attention.attention.query",
            k: "attention.attention.key",
            v: "attention.attention.value",
            ..Names::BERT
        },
        may_decode: false,
        ..BertLike::plain("qformer.", bert::HEAD)
    };
    let spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    for key in ["cross_attention_frequency", "encoder_hidden_size"] {
        reader.value(key);
    }
    reader.remark(
        "run on text alone: learned queries, and their attention to a picture, are left out"
            .to_owned(),
    );
    Ok(spec)
}
