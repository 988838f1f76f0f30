//! RemBERT: BERT with narrow embeddings, and a wider matrix of words of its own for the head.

use super::Family;
use super::reading::bert_like::{BertLike, Widening};
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family = Family::encoder("rembert", "RemBert", || BertLike {
    widens: Some(Widening {
        key: "input_embedding_size",
        map: "encoder.embedding_hidden_mapping_in",
        is_always: true,
        head_key: Some("output_embedding_size"),
    }),
    ..BertLike::plain(
        "rembert.",
        MaskedHead {
            dense: Some("cls.predictions.dense"),
            norm: "cls.predictions.LayerNorm",
            decoder: "cls.predictions.decoder",
            bias: "cls.predictions.bias",
            activation: None,
        },
    )
});
