//! Megatron BERT: BERT with norms before the branches, and none on the embeddings.

use super::reading::bert_like::{BertLike, Norms};
use super::{Family, bert};

pub const FAMILY: Family = Family::encoder("megatron-bert", "MegatronBert", || BertLike {
    embed_norm: None,
    norms: Norms::Before {
        attention: "attention.ln",
        mlp: "ln",
        last: "encoder.ln",
    },
    ..BertLike::plain("bert.", bert::HEAD)
});
