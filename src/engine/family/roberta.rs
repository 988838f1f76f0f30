//! RoBERTa: BERT whose positions are counted over tokens that are not padding, from the row after the padding's.

use super::Family;
use super::reading::bert_like::{self, BertLike, MaskedHead};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::Activation;

pub const FAMILY: Family = Family {
    model_type: "roberta",
    architecture: "Roberta",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    bert_like::read(checkpoint, reader, like(FAMILY.model_type))
}

/// What RoBERTa and the families that took over its code change.
pub(super) fn like(family: &'static str) -> BertLike {
    BertLike {
        family,
        base: "roberta.",
        head: MaskedHead {
            dense: "lm_head.dense",
            norm: "lm_head.layer_norm",
            decoder: "lm_head.decoder",
            bias: "lm_head.bias",
            activation: Some(Activation::Gelu),
        },
        counts_not_pad: true,
        widens: None,
    }
}
