//! MusicGen's decoder on the codes of its first book alone: those of the other books are read as padding, as where a sound begins.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    ConstantRow, FeedForward, HeadSpec, MlpSpec, ModelSpec, PositionTable, Sines, TableSource,
};

use super::Family;
use super::reading::llama_like::{
    self, BlockNames, NormPlaces, NormStyle, RMS, Recipe, RopeLayers, Sizes,
};
use super::reading::{activation, linear, prefix};

/// What a decoder alone does not use: attention to a text, and the heads of the other books.
pub const FAMILY: Family = Family::own("musicgen_decoder", "Musicgen", read)
    .leaving_unread(&["encoder_attn*", "lm_heads.*"]);

/// Prefixes of the decoder: of its base class, of the class with heads, and inside a whole model.
const BASES: [&str; 4] = ["decoder.", "model.decoder.", "decoder.model.decoder.", ""];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let base = prefix(tensors, &BASES, "embed_tokens.0.weight");
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: None,
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["self_attn_layer_norm", "final_layer_norm"]),
        rope_layers: RopeLayers::Never,
        names: BlockNames {
            o: "out_proj",
            final_norm: "layer_norm",
            ..BlockNames::USUAL
        },
        base: Some(base),
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let (d_model, d_vocab) = (sizes.d_model, sizes.d_vocab);
    let d_mlp = reader.size("d_mlp", "ffn_dim")?;
    let activation = activation(reader, "activation_function", "gelu")?;
    let mlp = |_: usize, at: &str| {
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let (up, down) = (map("fc1", d_model, d_mlp), map("fc2", d_mlp, d_model));
        FeedForward::Dense(Box::new(MlpSpec::plain(up, down, activation)))
    };
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    // A row of each table belongs to padding.
    let table = |book: usize| TableSource {
        tensor: format!("{base}embed_tokens.{book}.weight"),
        n_rows: d_vocab + 1,
        width: d_model,
    };
    let (n_books, padding) = books(reader, tensors.len(), d_vocab)?;
    let embed = &mut spec.stacks[0].embed;
    embed.tokens = table(0);
    let others = (1..n_books).map(|book| ConstantRow {
        table: table(book),
        row: padding,
        columns: vec![0],
    });
    embed.constants = others.collect();
    embed.positions = Some(PositionTable::Sinusoid(Sines::CosinesToEnd));
    reader.note("positions", "cosines and sines", Origin::Family);
    // transformers stores this key and does not scale.
    reader.value("scale_embedding");
    reader.value("audio_channels");
    reader.forget(&["unembedding", "tied_unembedding", "n_ctx"]);
    let of_whole = prefix(tensors, &["", "decoder."], "lm_heads.0.weight");
    let head = linear(&format!("{of_whole}lm_heads.0"), d_model, d_vocab, false);
    let has_head = tensors.contains(&head.weight);
    spec.head = has_head.then(|| HeadSpec::plain(head));
    spec.is_causal_lm = has_head;
    spec.n_ctx = None;
    reader.remark(format!(
        "run on codes of the first of {n_books} books: padding stands in the others, and there is no text to attend to"
    ));
    Ok(spec)
}

/// The number of books of codes, and the token that stands for no code.
fn books(reader: &mut Reader<'_>, n_tensors: usize, d_vocab: usize) -> Result<(usize, usize)> {
    const BOOKS: &str = "num_codebooks";
    const PADDING: &str = "pad_token_id";
    let n_books = reader.size_or("n_books", BOOKS, 4, Origin::Default(BOOKS.to_owned()))?;
    if n_books > n_tensors {
        let problem = format!(
            "{n_books} books have more tables than the {n_tensors} tensors that are stored"
        );
        return Err(Error::config(reader.path(), BOOKS, problem));
    }
    let padding = reader.count_or("pad_token", PADDING, 2048)?;
    if padding > d_vocab {
        let problem = format!("expected one of {} rows, found {padding}", d_vocab + 1);
        return Err(Error::config(reader.path(), PADDING, problem));
    }
    Ok((n_books, padding))
}
