//! BERT: learned positions and segments, norms after each branch, an optional masked-language head.

use super::Family;
use super::layouts::Keys;
use super::reading::bert_like::BertLike;
use super::reading::masked_head::MaskedHead;

pub const FAMILY: Family =
    Family::encoder("bert", "Bert", || BertLike::plain("bert.", HEAD)).with_keys(Keys::Bert);

/// Names of BERT's head, and of the heads of families derived from its code.
pub(super) const HEAD: MaskedHead = MaskedHead {
    dense: Some("cls.predictions.transform.dense"),
    norm: "cls.predictions.transform.LayerNorm",
    decoder: "cls.predictions.decoder",
    bias: "cls.predictions.bias",
    activation: None,
};
