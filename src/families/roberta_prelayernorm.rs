//! RoBERTa with norms before the branches, and a last one after them.

use super::reading::bert_like::{BertLike, Norms};
use super::{Family, roberta};

pub const FAMILY: Family =
    Family::encoder("roberta-prelayernorm", "RobertaPreLayerNorm", || BertLike {
        norms: Norms::Before {
            attention: "attention.LayerNorm",
            mlp: "intermediate.LayerNorm",
            last: "LayerNorm",
        },
        ..roberta::like("roberta_prelayernorm.")
    });
