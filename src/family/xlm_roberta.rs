//! XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.

use super::Family;
use super::reading::bert_like::{self, BertLike, MaskedHead};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::Activation;

pub const FAMILY: Family = Family {
    model_type: "xlm-roberta",
    architecture: "XLMRoberta",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        family: FAMILY.model_type,
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
    };
    bert_like::read(checkpoint, reader, like)
}
