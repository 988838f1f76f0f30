//! Canary: Parakeet's encoder, and a decoder with layer norms and sines of positions that attends to it.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{EmbedSpec, ModelSpec, PositionTable, Sines, Stack, TableSource};

use super::Family;
use super::reading::fast_conformer::{self, Like};
use super::reading::sound_writer::{self, Side};
use super::reading::{activation, even_heads, note_attention, prefix};

pub const FAMILY: Family =
    Family::own("canary", "Canary", read).leaving_unread(&["num_batches_tracked"]);

const DECODER: &str = "decoder_config";

/// The width of a head, if the configuration does not state it.
const D_HEAD: usize = 128;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let hearing = fast_conformer::stack_of_part(checkpoint, reader, Like::Parakeet)?;
    let config = reader.part(DECODER);
    let mut inner = Reader::new(&config);
    inner.value("model_type");
    let (decoder, [d_vocab, n_ctx]) = side(&mut inner, tensors, Some(D_HEAD))?;
    inner.note("decoder positions", "sines and cosines", Origin::Family);
    reader.absorb(DECODER, inner);
    reader.value("vocab_size");
    let (d_model, of_encoder) = (decoder.d_model, hearing.embed.tokens.width);
    if d_model != of_encoder {
        let problem = format!("expected the width of the encoder, {of_encoder}, found {d_model}");
        return Err(Error::config(reader.path(), "hidden_size", problem));
    }
    let words = TableSource {
        tensor: format!("{}embed_tokens.weight", decoder.base),
        n_rows: d_vocab,
        width: d_model,
    };
    // Sines are divided by √d_model before they are added. The norm behind takes a common factor away, so that embeddings and epsilon grow
    // instead.
    let mut norm = decoder.norm("embedding_layernorm");
    norm.eps *= d_model as f32;
    let writing = decoder.stack(EmbedSpec {
        scale: (d_model as f32).sqrt(),
        positions: Some(PositionTable::Sinusoid(Sines::Halves)),
        norm: Some(norm),
        ..EmbedSpec::plain(words)
    });
    let both = (checkpoint, reader);
    sound_writer::whole(FAMILY.model_type, both, [hearing, writing], (n_ctx, true))
}

/// The decoder's sizes and switches, with those of its vocabulary and of its positions. Heads are as wide as stated, or of some usual
/// width, or share the width of the residual.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn side<'a>(
    reader: &mut Reader<'_>,
    tensors: &'a Tensors,
    usual: Option<usize>,
) -> Result<(Side<'a>, [usize; 2])> {
    const HEADS: &str = "num_attention_heads";
    let d_model = reader.size("decoder d_model", "hidden_size")?;
    let n_heads = reader.size("decoder n_heads", HEADS)?;
    let same = Origin::Derived("decoder n_heads".to_owned());
    let n_kv_heads = reader.size_or("decoder n_kv_heads", "num_key_value_heads", n_heads, same)?;
    let usual = match usual {
        Some(width) => width,
        None => even_heads(reader, HEADS, d_model, n_heads)?,
    };
    let by = Origin::Default("head_dim".to_owned());
    let d_head = reader.size_or("decoder d_head", "head_dim", usual, by)?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let d_mlp = reader.size("decoder d_mlp", "intermediate_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let activation = activation(reader, "hidden_act", "relu")?;
    let has_bias = reader.flag_or("decoder has_bias", "attention_bias", true)?;
    let model = prefix(tensors, &["model.", ""], "decoder.embed_tokens.weight");
    let side = Side {
        tensors,
        base: format!("{model}decoder."),
        stack: Stack::Decoder,
        n_layers,
        n_heads,
        n_kv_heads,
        d_head,
        d_model,
        d_mlp,
        activation,
        has_bias,
        output_has_bias: has_bias,
        norms_have_bias: true,
        is_gated: false,
        rope: None,
        last_norm: "norm",
    };
    note_attention(reader, &side.attention(), Origin::Family);
    Ok((side, [d_vocab, n_ctx]))
}
