//! RoBERTa: BERT whose positions are counted over tokens that are not padding, from the row after the padding's.

use attnscope_compute::ops::Activation;

use super::Family;
use super::layouts::Keys;
use super::reading::bert_like::BertLike;
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family =
    Family::encoder("roberta", "Roberta", || like("roberta.")).with_keys(Keys::Bert);

/// How RoBERTa and the families derived from its code differ from BERT, under a given prefix.
pub(super) const fn like(base: &'static str) -> BertLike {
    BertLike {
        counts_not_pad: true,
        ..BertLike::plain(base, HEAD)
    }
}

/// Names of RoBERTa's head.
pub(super) const HEAD: MaskedHead = MaskedHead {
    dense: Some("lm_head.dense"),
    norm: "lm_head.layer_norm",
    decoder: "lm_head.decoder",
    bias: "lm_head.bias",
    activation: Some(Activation::Gelu),
};
