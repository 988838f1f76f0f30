//! ERNIE: BERT under names of its own.

use super::Family;
use super::reading::bert_like::{self, BertLike, MaskedHead};
use super::reading::must_be_off;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "ernie",
    architecture: "Ernie",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    must_be_off(
        reader,
        "use_task_id",
        "embeddings of tasks are not read in this family",
    )?;
    let like = BertLike {
        family: FAMILY.model_type,
        base: "ernie.",
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
