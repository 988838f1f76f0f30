//! MPNet: RoBERTa without segments, and with a learned bias by distance that all layers share.

use super::reading::bert_like::{BertLike, Names, Positions};
use super::{Family, roberta};

pub const FAMILY: Family = Family::encoder("mpnet", "MPNet", || BertLike {
    has_token_types: false,
    pad: Some(1),
    may_decode: false,
    positions: Positions::LearnedAndBuckets("encoder.relative_attention_bias"),
    names: Names {
        q: "attention.attn.q",
        k: "attention.attn.k",
        v: "attention.attn.v",
        o: "attention.attn.o",
        attn_norm: "attention.LayerNorm",
        ..Names::BERT
    },
    ..roberta::like("mpnet.")
});
