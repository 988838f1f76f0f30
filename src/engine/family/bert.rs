//! BERT: learned positions and segments, norms after each branch, an optional masked-language head.

use super::Family;
use super::reading::bert_like::{self, BertLike, MaskedHead};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "bert",
    architecture: "Bert",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        family: FAMILY.model_type,
        base: "bert.",
        head: MaskedHead {
            dense: "cls.predictions.transform.dense",
            norm: "cls.predictions.transform.LayerNorm",
            decoder: "cls.predictions.decoder",
            bias: "cls.predictions.bias",
            activation: None,
        },
        counts_not_pad: false,
        widens: None,
    };
    bert_like::read(checkpoint, reader, like)
}
