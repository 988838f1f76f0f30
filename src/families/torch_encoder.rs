//! Layers of `torch.nn.TransformerEncoderLayer` between a table of tokens and, perhaps, a head; keys are its arguments.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, PositionTable, StackSpec};

use super::Family;
use super::layouts::Keys;
use super::reading::torch_layers::{NONE, TorchLayers, named};

pub const FAMILY: Family =
    Family::own("torch_encoder", "TorchEncoder", read).with_keys(Keys::TorchEncoder);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let n_layers = reader.layers("num_layers")?;
    let torch = TorchLayers::read(&checkpoint.tensors, reader)?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let is_causal = reader.flag_or("mask", "is_causal", false)?;
    let layers = reader.word_or("layers", "layers", "layers.")?;
    let tokens = reader.word_or("tokens", "tokens", "embedding.weight")?;
    let positions = reader.word_or("positions", "positions", NONE)?;
    let positions = torch.positions(reader, &positions, ("n_ctx", "max_len"))?;
    let final_norm = named(reader, "final_norm")?;
    let head = named(reader, "head")?;
    let n_ctx = positions.as_ref().and_then(PositionTable::n_rows);
    let attention = torch.attention(reader, is_causal);
    let blocks = torch.blocks(reader, (&layers, n_layers), &attention, false)?;
    let embed = torch.embed(tokens, d_vocab, positions);
    let stack = StackSpec::only(embed, blocks, final_norm.map(|name| torch.norm(&name)));
    let head = head.map(|name| torch.head(&name, d_vocab));
    Ok(ModelSpec {
        n_ctx,
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
