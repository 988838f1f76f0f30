//! Encoder and decoder as `torch.nn.Transformer` has them, between tables of tokens and, perhaps, a head.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{DecoderInput, DecoderStart, ModelSpec, Stack, StackSpec};

use super::Family;
use super::layouts::Keys;
use super::reading::bart_like::decoder_start;
use super::reading::torch_layers::{NONE, TorchLayers, named};

pub const FAMILY: Family =
    Family::own("torch_transformer", "TorchTransformer", read).with_keys(Keys::TorchTransformer);

/// Knobs and keys of the encoder or the decoder.
struct Side {
    stack: Stack,
    n_layers: &'static str,
    layers: (&'static str, &'static str),
    tokens: (&'static str, &'static str),
    d_vocab: (&'static str, &'static str),
    n_ctx: (&'static str, &'static str),
    final_norm: &'static str,
}

const SOURCE: Side = Side {
    stack: Stack::Encoder,
    n_layers: "num_encoder_layers",
    layers: ("encoder_layers", "encoder.layers."),
    tokens: ("source_tokens", "src_embedding.weight"),
    d_vocab: ("d_vocab_source", "src_vocab_size"),
    n_ctx: ("n_ctx", "max_len"),
    final_norm: "encoder_norm",
};

const TARGET: Side = Side {
    stack: Stack::Decoder,
    n_layers: "num_decoder_layers",
    layers: ("decoder_layers", "decoder.layers."),
    tokens: ("target_tokens", "tgt_embedding.weight"),
    d_vocab: ("d_vocab", "tgt_vocab_size"),
    n_ctx: ("n_ctx_target", "target_max_len"),
    final_norm: "decoder_norm",
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let torch = TorchLayers::read(&checkpoint.tensors, reader)?;
    let causal = torch.attention(reader, true);
    let around = AttentionSpec::plain(torch.n_heads, torch.n_heads, causal.d_head, false);
    // The decoder uses the encoder's kind of positions, unless it has its own table.
    let positions = reader.word_or("positions", "positions", NONE)?;
    let encoder = stack(&torch, reader, &SOURCE, &around, &positions)?;
    let positions = reader.word_or("target_positions", "target_positions", &positions)?;
    let decoder = stack(&torch, reader, &TARGET, &causal, &positions)?;
    let d_vocab = decoder.embed.tokens.n_rows;
    let start = decoder_start(reader, None, d_vocab)?;
    let head = named(reader, "head")?.map(|name| torch.head(&name, d_vocab));
    let rows = |stack: &StackSpec| stack.embed.positions.as_ref()?.n_rows();
    let n_ctx = [rows(&encoder), rows(&decoder)].into_iter().flatten().min();
    // A shared table means one vocabulary; two tables are treated as two.
    let has_own_vocabulary = encoder.embed.tokens.tensor != decoder.embed.tokens.tensor;
    Ok(ModelSpec {
        n_ctx,
        is_causal_lm: head.is_some(),
        decoder_start: Some(DecoderStart {
            reads_again: DecoderInput::Never,
            has_own_vocabulary,
            ..start
        }),
        stacks: vec![encoder, decoder.clone()],
        ..ModelSpec::of_one_stack(FAMILY.model_type, decoder, head)
    })
}

fn stack(
    torch: &TorchLayers<'_>,
    reader: &mut Reader<'_>,
    side: &Side,
    attention: &AttentionSpec,
    positions: &str,
) -> Result<StackSpec> {
    let n_layers = reader.layers(side.n_layers)?;
    let (knob, default) = side.layers;
    let layers = reader.word_or(knob, knob, default)?;
    let (knob, default) = side.tokens;
    let tokens = reader.word_or(knob, knob, default)?;
    let d_vocab = reader.size(side.d_vocab.0, side.d_vocab.1)?;
    let positions = torch.positions(reader, positions, side.n_ctx)?;
    let final_norm = named(reader, side.final_norm)?;
    let is_decoder = side.stack == Stack::Decoder;
    let blocks = torch.blocks(reader, (&layers, n_layers), attention, is_decoder)?;
    Ok(StackSpec {
        stack: side.stack,
        ..StackSpec::only(
            torch.embed(tokens, d_vocab, positions),
            blocks,
            final_norm.map(|name| torch.norm(&name)),
        )
    })
}
