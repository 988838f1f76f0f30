//! CSM's decoder of the codes of one moment: Llama in which each position has a book of codes, with rows of its own.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, TableSource};

use super::Family;
use super::reading::linear;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};

/// Each position has a head of its own.
pub const FAMILY: Family = Family::own("csm_depth_decoder_model", "CsmDepthDecoder", read)
    .leaving_unread(&["codebooks_head.weight"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        theta: 500_000.0,
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    const BOOKS: &str = "num_codebooks";
    const WIDTH: &str = "backbone_hidden_size";
    let n_books = reader.size_or("n_books", BOOKS, 32, Origin::Default(BOOKS.to_owned()))?;
    let d_embed = reader.size_or("d_embed", WIDTH, 2048, Origin::Default(WIDTH.to_owned()))?;
    let n_each = spec.d_vocab;
    let n_rows = n_books.checked_mul(n_each).ok_or_else(|| {
        let problem = format!("{n_books} books of {n_each} codes are more than can be counted");
        Error::config(reader.path(), BOOKS, problem)
    })?;
    let d_model = spec.d_model;
    let embed = &mut spec.stacks[0].embed;
    let base = embed.tokens.tensor.trim_end_matches("embed_tokens.weight");
    let map = format!("{base}inputs_embeds_projector");
    embed.projection = Some(linear(&map, d_embed, d_model, false));
    embed.by_position = Some(n_each);
    embed.last_with_first_rows = 1;
    embed.tokens = TableSource {
        n_rows,
        width: d_embed,
        ..embed.tokens.clone()
    };
    spec.n_ctx = spec.n_ctx.map(|n_ctx| n_ctx.min(n_books + 1));
    spec.head = None;
    spec.is_causal_lm = false;
    reader.forget(&["unembedding", "tied_unembedding"]);
    reader.remark(
        "run on codes alone: the state of the model before it, which stands in the first place, and a head for each position are left out"
            .to_owned(),
    );
    Ok(spec)
}
