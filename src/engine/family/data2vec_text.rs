//! Data2Vec for text: RoBERTa under names of its own.

use super::reading::bert_like::{self, BertLike};
use super::{Family, roberta};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "data2vec-text",
    architecture: "Data2VecText",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        base: "data2vec_text.",
        ..roberta::like(FAMILY.model_type)
    };
    bert_like::read(checkpoint, reader, like)
}
