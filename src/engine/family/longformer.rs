//! Longformer: RoBERTa whose tokens see a window to both sides; without global tokens, as its base runs by itself.

use serde_json::Value;

use super::reading::bert_like::{self, BertLike};
use super::{Family, roberta};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::{Error, Result};
use crate::model::ModelSpec;

pub const FAMILY: Family = Family::own("longformer", "Longformer", read);

const LIKE: BertLike = BertLike {
    window: Some("attention_window"),
    may_decode: false,
    ..roberta::like("longformer.")
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    /// Classes that let some tokens see all others, by themselves.
    const GLOBAL: [&str; 3] = [
        "ForSequenceClassification",
        "ForQuestionAnswering",
        "ForMultipleChoice",
    ];
    const KEY: &str = "architectures";
    let class = reader.value(KEY).and_then(|list| list.get(0));
    let class = class.and_then(Value::as_str).unwrap_or_default();
    if GLOBAL.iter().any(|end| class.ends_with(end)) {
        let problem = format!(
            "expected a class whose tokens see windows alone, such as LongformerModel or LongformerForMaskedLM: {class} lets some \
             tokens see all others, which is not read"
        );
        return Err(Error::config(reader.path(), KEY, problem));
    }
    bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
