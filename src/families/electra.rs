//! ELECTRA: BERT whose embeddings may be narrower than its residual; the generator's head, where it is stored.

use attnscope_compute::ops::Activation;

use super::Family;
use super::reading::bert_like::{BertLike, Widening};
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family = Family::encoder("electra", "Electra", || BertLike {
    widens: Some(Widening {
        key: "embedding_size",
        map: "embeddings_project",
        is_always: false,
        head_key: None,
    }),
    ..BertLike::plain(
        "electra.",
        MaskedHead {
            dense: Some("generator_predictions.dense"),
            norm: "generator_predictions.LayerNorm",
            decoder: "generator_lm_head",
            bias: "generator_lm_head.bias",
            activation: Some(Activation::Gelu),
        },
    )
});
