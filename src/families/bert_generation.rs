//! BERT for sequence generation: BERT without segments, whose head is the words alone.

use super::Family;
use super::reading::bert_like::BertLike;
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family = Family::encoder("bert-generation", "BertGeneration", || BertLike {
    has_token_types: false,
    ..BertLike::plain(
        "bert.",
        MaskedHead {
            dense: None,
            norm: "",
            decoder: "lm_head.decoder",
            bias: "lm_head.bias",
            activation: None,
        },
    )
});
