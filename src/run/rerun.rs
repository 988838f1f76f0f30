//! Reruns part of a model from a kept layer input: up to another layer's input, or one head with a change.

use std::borrow::Cow;

use attnscope_compute::attention::HeadSummary;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_forward::recurrent::FinalStates;
use attnscope_forward::{
    BlockContext, Input, LayerWeights, Memory, NoHooks, Scratch, Sequence, attend_heads, run_layer,
};
use attnscope_spec::{Model, Place, Stack};

use super::kept::{Kept, LayerAt};
use super::what_if::{Change, changed};

/// Sequence that a stack reads, and the encoder output for its cross-attention.
pub(super) struct Streams<'a, O: Ops> {
    pub sequence: &'a Sequence,
    pub encoded: O::Buffer,
    source: Option<Cow<'a, Sequence>>,
    ends: FinalStates,
}

impl<'a, O: Ops> Streams<'a, O> {
    /// # Errors
    /// When the device fails.
    pub fn of(ops: &O, model: &Model, input: &'a Input, kept: &Kept, stack: Stack) -> Result<Self> {
        let sequence = match (stack, &input.source) {
            (Stack::Encoder, Some(source)) => source,
            _ => &input.sequence,
        };
        let mut encoded = O::Buffer::default();
        let is_decoder = matches!(stack, Stack::Decoder | Stack::Cross);
        let (mut source, mut ends) = (None, FinalStates::default());
        let encoded_rows = input.encoded(&model.spec);
        if let (true, Some(sequence), Some(memory)) = (is_decoder, encoded_rows, kept.memory()) {
            ops.put(&memory.hidden, model.spec.d_memory(), &mut encoded)?; // [source position, d_memory]
            (source, ends) = (Some(sequence), memory.ends.clone());
        }
        Ok(Self {
            sequence,
            encoded,
            source,
            ends,
        })
    }

    pub fn memory(&self) -> Option<Memory<'_, O>> {
        self.source.as_deref().map(|sequence| Memory {
            hidden: &self.encoded,
            sequence,
            ends: &self.ends,
        })
    }
}

/// Recomputes the input of a layer from the nearest kept one. // [position, d_model]
///
/// # Errors
/// When no input was kept to start from, a tensor contradicts the spec, or the run is stopped.
pub(super) fn input_of_layer<O: Ops>(
    context: &BlockContext<'_, O>,
    model: &Model,
    kept: &Kept,
    (stack, layer_idx): LayerAt,
) -> Result<O::Buffer> {
    let missing = || Error::Prompt(format!("layer {layer_idx} has not run yet"));
    let spec = model.spec.stack_of(stack);
    let (from_layer, start) = kept.nearest((spec.stack, layer_idx)).ok_or_else(missing)?;
    let mut resid = O::Buffer::default();
    let width = model.spec.d_input(spec, from_layer);
    context.ops.put(&start, width, &mut resid)?;
    run_layers(context, model, stack, from_layer..layer_idx, &mut resid)?;
    Ok(resid)
}

fn run_layers<O: Ops>(
    context: &BlockContext<'_, O>,
    model: &Model,
    stack: Stack,
    layers: std::ops::Range<usize>,
    resid: &mut O::Buffer,
) -> Result<()> {
    let mut scratch = Scratch::<O>::default();
    let _reuse = reuse_buffers();
    let stack = model.spec.stack_of(stack);
    for layer_idx in layers {
        let weights =
            LayerWeights::read(context.ops, context.tensors, stack, layer_idx, context.pace)?;
        run_layer(
            context,
            stack,
            layer_idx,
            &weights,
            resid,
            &mut scratch,
            &mut NoHooks,
        )?;
    }
    Ok(())
}

/// Reruns one self-attention head with changes, from a kept layer input.
///
/// # Errors
/// As for [`input_of_layer`].
pub fn head_with<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    kept: &Kept,
    (stack, layer_idx, head_idx): (Stack, usize, usize),
    changes: &[Change],
) -> Result<Option<HeadSummary>> {
    let place = Place::layer(stack, layer_idx);
    let spec = changes.iter().fold(model.spec.clone(), |spec, change| {
        changed(&spec, place, *change)
    });
    let streams = Streams::<O>::of(ops, model, input, kept, stack)?;
    let tensors = &model.checkpoint.tensors;
    let of_stack = model.spec.stack_of(stack);
    let go_on = || false;
    let context = BlockContext::of(
        ops,
        tensors,
        of_stack,
        streams.sequence,
        streams.memory(),
        &go_on,
    )?;
    let resid = input_of_layer(&context, model, kept, (stack, layer_idx))?;
    let block = spec.stack_of(stack).blocks().get(layer_idx);
    let Some((block, own)) = block.and_then(|block| Some((block, block.own()?))) else {
        return Ok(None);
    };
    let only = head_idx..head_idx + 1;
    let sequence = streams.sequence.of_layer(of_stack, layer_idx);
    let context = context.over(&sequence);
    let heads = attend_heads(&context, (block, own), &resid, only, &mut NoHooks)?.summaries;
    Ok(heads.into_iter().next())
}
