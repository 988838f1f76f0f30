//! The grids of layers and heads that a place refers to.

use attnscope_compute::attention::AttentionSpec;

use super::model::ModelSpec;
use super::place::{Grid, Stack};
use super::projection::ProjectionSpec;
use super::self_attention::Exceptions;
use super::stack::{Layers, StackSpec};

impl ModelSpec {
    /// The model's grids of layers and heads, in the order in which they run. A stack without layers, such as an
    /// encoder whose rows are given, has no grid.
    pub fn grids(&self) -> Vec<Stack> {
        let has_own = |stack: &&StackSpec| stack.recurrence().is_none() && stack.n_layers() > 0;
        let with_own = self.stacks.iter().filter(has_own);
        let mut grids: Vec<Stack> = with_own.map(|stack| stack.stack).collect();
        let has_cross = match &self.main_stack().layers {
            Layers::Recurrent(_) => true,
            Layers::Blocks(blocks) => blocks.iter().any(|block| block.cross.is_some()),
        };
        if self.is_encoder_decoder() && has_cross {
            grids.push(Stack::Cross);
        }
        grids
    }

    /// Number of heads in every layer of every grid.
    pub fn shape(&self) -> Vec<Grid> {
        let of = |stack: Stack| Grid {
            stack,
            n_heads: (0..self.n_layers(stack))
                .map(|layer_idx| self.n_heads(stack, layer_idx))
                .collect(),
        };
        self.grids().into_iter().map(of).collect()
    }

    /// The grid shown first.
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

    /// The linear maps of one layer's attention.
    pub fn projections(&self, grid: Stack, layer_idx: usize) -> Option<&ProjectionSpec> {
        let stack = self.stack_of(grid);
        let block = match &stack.layers {
            Layers::Blocks(blocks) => blocks.get(layer_idx)?,
            Layers::Recurrent(_) => return None,
        };
        match grid {
            Stack::Cross => block.cross.as_ref().map(|cross| &cross.projections),
            _ => block.own().map(|own| &own.projections),
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

    /// Exceptions for single heads in a layer of a grid.
    pub fn exceptions(&self, grid: Stack, layer_idx: usize) -> Option<&Exceptions> {
        let block = self.stack_of(grid).blocks().get(layer_idx)?;
        match grid {
            Stack::Cross => block.cross.as_ref().map(|cross| &cross.exceptions),
            _ => block.own().map(|own| &own.exceptions),
        }
    }

    /// Whether something besides keys takes probability in a layer of a grid: learned sinks, empty places of windows, or keys of another
    /// grid in the same softmax.
    pub fn has_sinks(&self, grid: Stack, layer_idx: usize) -> bool {
        let block = self.stack_of(grid).blocks().get(layer_idx);
        if block.is_some_and(|block| block.merged().is_some()) {
            return true;
        }
        let projections = match grid {
            Stack::Cross => block.and_then(|block| Some(&block.cross.as_ref()?.projections)),
            _ => block.and_then(|block| Some(&block.own()?.projections)),
        };
        let has_empty = |maps: &ProjectionSpec| {
            let steps = maps.steps.as_ref();
            steps.is_some_and(|steps| steps.has_empty_places)
        };
        projections.is_some_and(|maps| maps.sinks.is_some() || has_empty(maps))
    }

    /// Number of layers of a grid.
    pub fn n_layers(&self, grid: Stack) -> usize {
        self.stack_of(grid).n_layers()
    }

    /// Total number of layers over all stacks.
    pub fn n_layers_to_run(&self) -> usize {
        self.stacks.iter().map(StackSpec::n_layers).sum()
    }

    /// Number of heads in a layer of a grid; 0 if it has no attention.
    pub fn n_heads(&self, grid: Stack, layer_idx: usize) -> usize {
        self.attention(grid, layer_idx)
            .map_or(0, |attention| attention.n_heads)
    }
}
