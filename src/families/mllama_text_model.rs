//! The text part of Llama 3.2 Vision: Llama with further layers that attend to a picture. Without one, they change nothing.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{BlockSpec, FeedForward, Mixer, ModelSpec};

use super::Family;
use super::reading::llama_like::{self, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::own("mllama_text_model", "MllamaText", read);

/// Tokens that the table of embeddings has beyond the vocabulary.
const N_FURTHER: usize = 8;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        theta: 500_000.0,
        norm: NormStyle { eps: 1e-5, ..RMS },
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    const CROSS: &str = "cross_attention_layers";
    let crossing = reader.numbers(CROSS)?;
    let crossing = crossing.unwrap_or_else(|| (3..39).step_by(5).collect());
    spec.stacks[0].embed.tokens.n_rows += N_FURTHER;
    let blocks = spec.stacks[0].blocks_mut().iter_mut().enumerate();
    let mut n = 0;
    for (_, block) in blocks.filter(|(idx, _)| crossing.contains(&(*idx as u64))) {
        *block = BlockSpec::mixed(Mixer::None, FeedForward::None);
        n += 1;
    }
    let said = format!("{n}, left out without a picture");
    reader.note("layers_of_pictures", said, Origin::Key(CROSS.to_owned()));
    reader.remark(format!(
        "run on text alone: the {n} layers that attend to a picture change nothing, as in transformers"
    ));
    Ok(spec)
}
