//! BLIP's tower of captions: BERT without segments. Captions beside a picture are refused.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::reading::tasks::refuse_classes;
use super::{Family, bert};

pub const FAMILY: Family = Family::own("blip_text_model", "BlipTextModel", read).leaving_unread(&[
    // Every layer stores the attention to a picture that a caption alone does not use.
    "crossattention.self.query.weight",
    "crossattention.self.query.bias",
    "crossattention.self.key.weight",
    "crossattention.self.key.bias",
    "crossattention.self.value.weight",
    "crossattention.self.value.bias",
    "crossattention.output.dense.weight",
    "crossattention.output.dense.bias",
    "crossattention.output.LayerNorm.weight",
    "crossattention.output.LayerNorm.bias",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    refuse_classes(
        reader,
        &[
            "ForConditionalGeneration",
            "ForQuestionAnswering",
            "ForImageTextRetrieval",
            "LMHeadModel",
        ],
        "a class with a tower of captions, such as BlipModel",
        "reads its text beside a picture; --set tower=vision reads the tower of pictures",
    )?;
    let like = BertLike {
        has_token_types: false,
        may_decode: false,
        ..BertLike::plain("text_model.", bert::HEAD)
    };
    bert_like::read(FAMILY.model_type, checkpoint, reader, like)
}
