//! Transformers behind parts that are not read, such as a codec's convolutions: their rows are given as numbers.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::{Prefix, SoundRule};
use attnscope_spec::{
    BlockSpec, DecoderInput, DecoderStart, EmbedSpec, LinearSource, ModelSpec, NormSource,
    SoundStem, Stack, StackSpec, TableSource,
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

/// The encoder of a decoder that is saved alone: rows as attention to it reads them, with no layer behind them.
pub fn encoder(tensor: String, width: usize) -> StackSpec {
    StackSpec {
        stack: Stack::Encoder,
        ..StackSpec::only(embed(tensor, width), Vec::new(), None)
    }
}

/// Where a decoder begins that reads rows, of numbers or of a table, all of which are given: it writes nothing.
pub fn start() -> DecoderStart {
    DecoderStart {
        start_token: 0,
        end_tokens: Vec::new(),
        prefixes: [Prefix::NONE; 2],
        forced: Vec::new(),
        never_written: Vec::new(),
        never_first: Vec::new(),
        reads_again: DecoderInput::Never,
        has_own_vocabulary: true,
    }
}

/// A decoder that reads rows of numbers in place of tokens, and attends to others.
pub fn read_beside(
    family: &'static str,
    reader: &mut Reader<'_>,
    [others, decoder]: [StackSpec; 2],
) -> ModelSpec {
    reader.remark("the decoder's own rows are given too (--target-text FILE)".to_owned());
    let d_model = decoder.embed.tokens.width;
    ModelSpec {
        d_model,
        d_vocab: d_model,
        decoder_start: Some(start()),
        stacks: vec![others.clone(), decoder],
        ..ModelSpec::of_one_stack(family, others, None)
    }
}

/// A decoder of learned rows, all of which are read by their numbers, that attends to what an encoder gives.
pub fn of_numbers(
    family: &'static str,
    reader: &mut Reader<'_>,
    what: &str,
    [encoder, decoder]: [StackSpec; 2],
) -> ModelSpec {
    let TableSource { n_rows, width, .. } = decoder.embed.tokens;
    reader.remark(format!(
        "the decoder reads the numbers of {what}: all are --target-tokens 0,1,…,{}",
        n_rows.saturating_sub(1)
    ));
    ModelSpec {
        d_model: width,
        d_vocab: n_rows,
        decoder_start: Some(start()),
        stacks: vec![encoder.clone(), decoder],
        ..ModelSpec::of_one_stack(family, encoder, None)
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
