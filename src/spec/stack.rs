//! A stack: embedding, layers and final norm of one residual stream.

use attnscope_compute::attention::{AttentionSpec, Bias};

use super::block::BlockSpec;
use super::embed::EmbedSpec;
use super::norm_source::NormSource;
use super::place::Stack;
use super::recurrent::Recurrence;
use super::rows::RowSpec;
use super::source::{LinearSource, TableSource};

/// The layers of a stack.
#[derive(Debug, Clone, PartialEq)]
pub enum Layers {
    Blocks(Vec<BlockSpec>),
    /// A recurrent network; it counts as one layer.
    Recurrent(Recurrence),
}

/// One stack: embedding, layers and final norm of a residual stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StackSpec {
    pub stack: Stack,
    pub embed: EmbedSpec,
    pub layers: Layers,
    /// Learned bias per distance bucket, shared by all blocks. // [bucket, head]
    pub bucket_values: Option<TableSource>,
    pub final_norm: Option<NormSource>,
    /// A map behind the final norm: the last hidden states are its outputs.
    pub last_map: Option<LinearSource>,
    /// Set if a row holds more than one residual.
    pub rows: Option<Box<RowSpec>>,
}

impl StackSpec {
    /// A model's only stack.
    pub fn only(embed: EmbedSpec, blocks: Vec<BlockSpec>, final_norm: Option<NormSource>) -> Self {
        Self {
            stack: Stack::Only,
            embed,
            layers: Layers::Blocks(blocks),
            bucket_values: None,
            final_norm,
            last_map: None,
            rows: None,
        }
    }

    /// The blocks; empty for a recurrent network.
    pub fn blocks(&self) -> &[BlockSpec] {
        match &self.layers {
            Layers::Blocks(blocks) => blocks,
            Layers::Recurrent(_) => &[],
        }
    }

    /// The blocks, mutable; empty for a recurrent network.
    pub fn blocks_mut(&mut self) -> &mut [BlockSpec] {
        match &mut self.layers {
            Layers::Blocks(blocks) => blocks,
            Layers::Recurrent(_) => &mut [],
        }
    }

    /// The recurrent network; `None` for a stack of blocks.
    pub fn recurrence(&self) -> Option<&Recurrence> {
        match &self.layers {
            Layers::Blocks(_) => None,
            Layers::Recurrent(recurrence) => Some(recurrence),
        }
    }

    /// The recurrent network, mutable; `None` for a stack of blocks.
    pub fn recurrence_mut(&mut self) -> Option<&mut Recurrence> {
        match &mut self.layers {
            Layers::Blocks(_) => None,
            Layers::Recurrent(recurrence) => Some(recurrence),
        }
    }

    /// Whether sines of distances are computed, up to the longest one, or scores have a stored value for each query and key.
    pub(crate) fn reaches_to_an_end(&self) -> bool {
        let mut own = self.blocks().iter().filter_map(BlockSpec::own);
        own.any(|own| {
            let relative = own.projections.relative.as_deref();
            relative.is_some_and(|relative| relative.embeddings.limits())
                || matches!(
                    own.attention.bias,
                    Bias::Pairs(_) | Bias::Grid(_) | Bias::OfValues
                )
        })
    }

    /// Number of layers; a recurrent network counts as one.
    pub fn n_layers(&self) -> usize {
        match &self.layers {
            Layers::Recurrent(_) => 1,
            Layers::Blocks(blocks) => blocks.len(),
        }
    }

    /// The attention of the first layer that has one, for statements about the whole stack.
    pub fn first_attention(&self) -> Option<&AttentionSpec> {
        match &self.layers {
            Layers::Recurrent(recurrence) => recurrence.attention(),
            Layers::Blocks(blocks) => blocks.iter().find_map(BlockSpec::attention),
        }
    }
}
