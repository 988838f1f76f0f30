//! Longformer: RoBERTa whose tokens see a window to both sides; without global tokens, as its base runs by itself.

use super::reading::bert_like::{self, BertLike};
use super::reading::tasks::refuse_classes;
use super::{Family, roberta};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family::own("longformer", "Longformer", read);

const LIKE: BertLike = BertLike {
    window: Some("attention_window"),
    may_decode: false,
    ..roberta::like("longformer.")
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Classes that let some tokens see all others, by themselves.
    refuse_classes(
        reader,
        &[
            "ForSequenceClassification",
            "ForQuestionAnswering",
            "ForMultipleChoice",
        ],
        "a class whose tokens see windows alone, such as LongformerModel or LongformerForMaskedLM",
        "lets some tokens see all others, which is not read",
    )?;
    bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
