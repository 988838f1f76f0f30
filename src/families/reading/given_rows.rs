//! Transformers behind parts that are not read, such as a codec's convolutions: their rows are given as numbers.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;
use attnscope_spec::{
    BlockSpec, EmbedSpec, LinearSource, ModelSpec, NormSource, SoundStem, StackSpec, TableSource,
};

use super::llama_like::{Recipe, Sizes, read_sized};

/// An embedding that takes rows as they reach the first layer, of which a tensor is named.
pub fn embed(tensor: String, d_model: usize) -> EmbedSpec {
    let rule = SoundRule::of_rows(d_model);
    EmbedSpec {
        sound: Some(Box::new(SoundStem::plain(rule, Activation::Identity))),
        ..EmbedSpec::plain(TableSource {
            tensor,
            n_rows: d_model,
            width: d_model,
        })
    }
}

/// An embedding that maps rows of numbers to the width of the residual.
pub fn mapped(map: LinearSource) -> EmbedSpec {
    EmbedSpec {
        projects_first: true,
        projection: Some(map.clone()),
        ..embed(map.weight, map.n_in)
    }
}

/// A model of blocks over rows as they reach the first of them, of which a tensor is named; it has no vocabulary and no head.
pub fn model(
    family: &'static str,
    (first, d_model): (String, usize),
    blocks: Vec<BlockSpec>,
    last_norm: Option<NormSource>,
) -> ModelSpec {
    let stack = StackSpec::only(embed(first, d_model), blocks, last_norm);
    ModelSpec::of_one_stack(family, stack, None)
}

/// Says that rows have to be given, and what gives them in the whole model.
pub fn remark(reader: &mut Reader<'_>, made_by: &str) {
    reader.remark(format!(
        "run on rows of numbers that {made_by} would give, which are not read (--values FILE)"
    ));
}

/// Reads layers by a recipe that names their prefix, and the norm behind them if there is one; no vocabulary and no head is read.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_layers(
    family: &'static str,
    (checkpoint, reader): (&Checkpoint, &mut Reader<'_>),
    recipe: &Recipe,
    (made_by, has_last_norm): (&str, bool),
) -> Result<ModelSpec> {
    let sizes = Sizes::without_vocabulary(reader, recipe.d_head)?;
    let spec = read_sized(family, checkpoint, reader, recipe, sizes)?;
    reader.value("tie_word_embeddings");
    reader.forget(&["unembedding", "tied_unembedding", "embedding_scale"]);
    remark(reader, made_by);
    let base = recipe.base.unwrap_or_default();
    let first = format!("{base}layers.0.self_attn.q_proj.weight");
    let read = &spec.stacks[0];
    let last = read.final_norm.clone().filter(|_| has_last_norm);
    let first = (first, sizes.d_model);
    Ok(ModelSpec {
        n_ctx: spec.n_ctx,
        ..model(family, first, read.blocks().to_vec(), last)
    })
}
