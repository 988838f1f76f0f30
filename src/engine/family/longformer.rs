//! Longformer: RoBERTa whose tokens see a window to both sides; without global tokens, as its base runs by itself.

use super::reading::bert_like::BertLike;
use super::{Family, roberta};

pub const FAMILY: Family = Family::encoder("longformer", "Longformer", || BertLike {
    window: Some("attention_window"),
    ..roberta::like("longformer.")
});
