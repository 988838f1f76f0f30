//! BigBird: BERT, whose attention is sparse in long texts alone: it is read up to where it is full.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::reading::task_rules::{HeadActivation, TaskRules};
use super::reading::tasks::refuse_classes;
use super::{Family, bert};

pub const FAMILY: Family = Family::own("big_bird", "BigBird", read).with_tasks(TaskRules {
    dense: HeadActivation::Key("hidden_act", "gelu_new"),
    ..TaskRules::USUAL
});

const LIKE: BertLike = BertLike {
    qkv_bias: Some("use_bias"),
    rescales: Some("rescale_embeddings"),
    activation: (Some("hidden_act"), "gelu_new"),
    ..BertLike::plain("bert.", bert::HEAD)
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    refuse_classes(
        reader,
        &["ForQuestionAnswering"],
        "a class that takes tokens as they are, such as BigBirdModel or BigBirdForMaskedLM",
        "tells the question from the text by separators, which is not read",
    )?;
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    spec.n_ctx = full_up_to(reader, spec.n_ctx)?;
    Ok(spec)
}

/// The number of positions that are read: those of texts short enough for full attention.
///
/// # Errors
/// When the kind of attention is not known, or a size is impossible.
pub(super) fn full_up_to(reader: &mut Reader<'_>, n_ctx: Option<usize>) -> Result<Option<usize>> {
    const KIND: &str = "attention_type";
    match reader
        .word_or("attention_type", KIND, "block_sparse")?
        .as_str()
    {
        "original_full" => Ok(n_ctx),
        "block_sparse" => {
            let default = |key: &str| Origin::Default(key.to_owned());
            let (size, random) = ("block_size", "num_random_blocks");
            let block = reader.size_or("block_size", size, 64, default(size))?;
            let n_random = reader.size_or("n_random_blocks", random, 3, default(random))?;
            let full = (5 + 2 * n_random).saturating_mul(block);
            if n_ctx.is_some_and(|n_ctx| n_ctx <= full) {
                return Ok(n_ctx);
            }
            reader.remark(format!(
                "texts of up to {full} tokens are read, in which every token sees every other one; longer ones have sparse \
                 attention, with blocks that transformers draws by chance"
            ));
            Ok(Some(full))
        }
        other => {
            let problem = format!("expected original_full or block_sparse, found {other:?}");
            Err(Error::config(reader.path(), KIND, problem))
        }
    }
}
