//! One layer of a stack: a block, or a whole recurrent network.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_spec::recurrent::Recurrence;
use attnscope_spec::{Layers, StackSpec};

use super::attend::AttentionRun;
use super::block::run_block;
use super::block_weights::BlockWeights;
use super::context::BlockContext;
use super::hook::Hooks;
use super::merge::{join_rows, merge_patches};
use super::moments::add_moments;
use super::recurrent::{self, FinalStates};
use super::scratch::Scratch;

/// Weights of one layer; those of a recurrent network are read while it runs.
pub struct LayerWeights<'a, O: Ops>(Option<BlockWeights<'a, O>>);

impl<'a, O: Ops> LayerWeights<'a, O> {
    /// # Errors
    /// When a tensor is missing, has the wrong shape, or the device refuses it.
    pub fn read(
        ops: &'a O,
        tensors: &'a Tensors,
        stack: &StackSpec,
        layer_idx: usize,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let block = stack.blocks().get(layer_idx);
        let read = |block| BlockWeights::read(ops, tensors, block, pace);
        Ok(Self(block.map(read).transpose()?))
    }

    /// Reads weights for one prompt: those that are multiplied once may be read when they are.
    ///
    /// # Errors
    /// As for [`LayerWeights::read`].
    pub fn read_for_one_run(
        ops: &'a O,
        tensors: &'a Tensors,
        stack: &StackSpec,
        layer_idx: usize,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let block = stack.blocks().get(layer_idx);
        let read = |block| BlockWeights::read_for_one_run(ops, tensors, block, pace);
        Ok(Self(block.map(read).transpose()?))
    }

    /// Reads weights in a layout for multiplying a few rows many times, as in generation.
    ///
    /// # Errors
    /// As for [`LayerWeights::read`].
    pub fn read_for_few_rows(
        ops: &'a O,
        tensors: &'a Tensors,
        stack: &StackSpec,
        layer_idx: usize,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let block = stack.blocks().get(layer_idx);
        let read = |block| BlockWeights::read_for_few_rows(ops, tensors, block, pace);
        Ok(Self(block.map(read).transpose()?))
    }
}

/// Attention results of a layer, besides its output residual.
#[derive(Debug, Default)]
pub struct LayerRun {
    pub attention: Option<AttentionRun>,
    pub cross: Option<AttentionRun>,
    /// Final states of a recurrent encoder.
    pub ends: FinalStates,
}

/// Runs one layer on the residual, in place; the last layer of a stage leaves the rows of the next.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, the device fails, or a hook cannot keep what it asked for.
pub fn run_layer<O: Ops>(
    context: &BlockContext<'_, O>,
    stack: &StackSpec,
    layer_idx: usize,
    weights: &LayerWeights<'_, O>,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<LayerRun> {
    match (&stack.layers, &weights.0) {
        (Layers::Recurrent(Recurrence::Reader(spec)), _) => Ok(LayerRun {
            ends: recurrent::read(context, spec, resid, hooks)?,
            ..LayerRun::default()
        }),
        (Layers::Recurrent(Recurrence::Writer(spec)), _) => Ok(LayerRun {
            cross: Some(recurrent::write(context, spec, resid, hooks)?),
            ..LayerRun::default()
        }),
        (Layers::Blocks(blocks), Some(weights)) => {
            let block = &blocks[layer_idx];
            let sequence = context.sequence.of_layer(stack, layer_idx);
            let of_stage;
            let context = match &sequence {
                Cow::Borrowed(_) => context,
                Cow::Owned(sequence) => {
                    of_stage = context.over(sequence);
                    &of_stage
                }
            };
            let ran = run_block(context, block, weights, resid, scratch, hooks)?;
            if let Some(merge) = block.merge.as_deref() {
                merge_patches(context, merge, resid)?;
            }
            if let Some(table) = block.joined.as_deref() {
                join_rows(context, table, resid)?;
            }
            if let Some(rows) = block.moments.as_deref() {
                add_moments(context, rows, resid)?;
            }
            Ok(LayerRun {
                attention: ran.attention,
                cross: ran.cross,
                ends: FinalStates::default(),
            })
        }
        (Layers::Blocks(_), None) => Ok(LayerRun::default()),
    }
}
