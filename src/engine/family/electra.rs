//! ELECTRA: BERT whose embeddings may be narrower than its residual; the generator's head, where it is stored.

use super::Family;
use super::reading::bert_like::{self, BertLike, MaskedHead};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::Activation;

pub const FAMILY: Family = Family {
    model_type: "electra",
    architecture: "Electra",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        family: FAMILY.model_type,
        base: "electra.",
        head: MaskedHead {
            dense: "generator_predictions.dense",
            norm: "generator_predictions.LayerNorm",
            decoder: "generator_lm_head",
            bias: "generator_lm_head.bias",
            activation: Some(Activation::Gelu),
        },
        counts_not_pad: false,
        widens: Some("embeddings_project"),
    };
    bert_like::read(checkpoint, reader, like)
}
