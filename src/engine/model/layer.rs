//! One layer of a stack, whatever it is made of: a block, or all of a recurrent network.

use super::block_weights::BlockWeights;
use super::context::{BlockContext, Scratch};
use super::exception::Exceptions;
use super::forward::{AttentionRun, run_block};
use super::hook::Hooks;
use super::recurrent::{self, Ends, Recurrence};
use super::spec::{BlockSpec, Layers, ModelSpec, StackSpec};
use crate::attention::AttentionSpec;
use crate::checkpoint::Tensors;
use crate::error::Result;
use crate::ops::Ops;
use crate::pace::Pace;
use crate::place::{Grid, Stack};

/// The weights of one layer; those of a recurrent network are read while it runs.
pub struct LayerWeights<'a, O: Ops>(Option<BlockWeights<'a, O>>);

impl<'a, O: Ops> LayerWeights<'a, O> {
    /// # Errors
    /// When a tensor is missing or has another shape, or the device refuses it.
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

    /// Reads weights that will meet a few rows at a time, many times: as when a model writes.
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

/// What a layer's attentions told, beside the residual it leaves.
#[derive(Debug, Default)]
pub struct LayerRun {
    pub attention: Option<AttentionRun>,
    pub cross: Option<AttentionRun>,
    /// What a recurrent encoder ended with.
    pub ends: Ends,
}

/// Runs one layer on the residual, in place.
///
/// # Errors
/// When the pace stops it, a tensor is not as the spec says, the device fails, or a hook cannot keep what it asked for.
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
            let ran = run_block(context, block, weights, resid, scratch, hooks)?;
            Ok(LayerRun {
                attention: ran.attention,
                cross: ran.cross,
                ends: Ends::default(),
            })
        }
        (Layers::Blocks(_), None) => Ok(LayerRun::default()),
    }
}

impl StackSpec {
    /// How many layers run one after another; a recurrent network is one.
    pub fn n_layers(&self) -> usize {
        match &self.layers {
            Layers::Recurrent(_) => 1,
            Layers::Blocks(blocks) => blocks.len(),
        }
    }

    /// The attention of the first layer that has one: for what is told of all of them at once.
    pub fn first_attention(&self) -> Option<&AttentionSpec> {
        match &self.layers {
            Layers::Recurrent(recurrence) => recurrence.attention(),
            Layers::Blocks(blocks) => blocks.iter().find_map(BlockSpec::attention),
        }
    }
}

impl ModelSpec {
    /// Which grids of layers and heads the model has, in the order in which they run.
    pub fn grids(&self) -> Vec<Stack> {
        let with_own = self.stacks.iter().filter(|s| s.recurrence().is_none());
        let mut grids: Vec<Stack> = with_own.map(|stack| stack.stack).collect();
        if self.is_encoder_decoder() {
            grids.push(Stack::Cross);
        }
        grids
    }

    /// Heads of every layer of every grid: what places are in.
    pub fn shape(&self) -> Vec<Grid> {
        let of = |stack: Stack| Grid {
            stack,
            n_heads: (0..self.n_layers(stack))
                .map(|layer_idx| self.n_heads(stack, layer_idx))
                .collect(),
        };
        self.grids().into_iter().map(of).collect()
    }

    /// The grid that a person looks at first.
    pub fn main_grid(&self) -> Stack {
        let main = self.main_stack();
        match main.layers {
            Layers::Recurrent(_) => Stack::Cross,
            Layers::Blocks(_) => main.stack,
        }
    }

    /// The stack in which the layers of a grid run: cross-attention runs in the decoder.
    pub fn stack_of(&self, grid: Stack) -> &StackSpec {
        match grid {
            Stack::Encoder => &self.stacks[0],
            _ => self.main_stack(),
        }
    }

    /// The attention of one layer of a grid.
    pub fn attention(&self, grid: Stack, layer_idx: usize) -> Option<&AttentionSpec> {
        let stack = self.stack_of(grid);
        match (&stack.layers, grid) {
            (Layers::Recurrent(recurrence), Stack::Cross) if layer_idx == 0 => {
                recurrence.attention()
            }
            (Layers::Recurrent(_), _) => None,
            (Layers::Blocks(blocks), Stack::Cross) => {
                let cross = blocks.get(layer_idx)?.cross.as_ref();
                cross.map(|cross| &cross.attention)
            }
            (Layers::Blocks(blocks), _) => blocks.get(layer_idx)?.attention(),
        }
    }

    /// The heads of a layer of a grid that run otherwise than it.
    pub fn exceptions(&self, grid: Stack, layer_idx: usize) -> Option<&Exceptions> {
        let block = self.stack_of(grid).blocks().get(layer_idx)?;
        match grid {
            Stack::Cross => block.cross.as_ref().map(|cross| &cross.exceptions),
            _ => block.own().map(|own| &own.exceptions),
        }
    }

    /// Whether a layer of a grid has learned sinks.
    pub fn has_sinks(&self, grid: Stack, layer_idx: usize) -> bool {
        let block = self.stack_of(grid).blocks().get(layer_idx);
        let projections = match grid {
            Stack::Cross => block.and_then(|block| Some(&block.cross.as_ref()?.projections)),
            _ => block.and_then(|block| Some(&block.own()?.projections)),
        };
        projections.is_some_and(|projections| projections.sinks.is_some())
    }

    /// Layers of a grid.
    pub fn n_layers(&self, grid: Stack) -> usize {
        self.stack_of(grid).n_layers()
    }

    /// Layers of all stacks, as they run.
    pub fn n_layers_to_run(&self) -> usize {
        self.stacks.iter().map(StackSpec::n_layers).sum()
    }

    /// Heads of a layer of a grid.
    pub fn n_heads(&self, grid: Stack, layer_idx: usize) -> usize {
        self.attention(grid, layer_idx)
            .map_or(0, |attention| attention.n_heads)
    }
}
