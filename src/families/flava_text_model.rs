//! The text part of FLAVA: BERT's embeddings, and ViT's blocks with norms before the branches.

use super::reading::bert_like::{BertLike, Names, Norms};
use super::{Family, bert};

pub const FAMILY: Family = Family::encoder("flava_text_model", "FlavaText", || BertLike {
    norms: Norms::Before {
        attention: "layernorm_before",
        mlp: "layernorm_after",
        last: "layernorm",
    },
    names: Names {
        q: "attention.attention.query",
        k: "attention.attention.key",
        v: "attention.attention.value",
        ..Names::BERT
    },
    qkv_bias: Some("qkv_bias"),
    may_decode: false,
    ..BertLike::plain("text_model.", bert::HEAD)
});
