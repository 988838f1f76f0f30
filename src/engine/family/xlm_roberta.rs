//! XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.

use super::reading::bert_like;
use super::{Family, roberta};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "xlm-roberta",
    architecture: "XLMRoberta",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    bert_like::read(checkpoint, reader, roberta::like(FAMILY.model_type))
}
