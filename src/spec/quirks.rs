//! Additions to a block or a head that few families have.

use attnscope_compute::ops::Activation;

use super::source::{LinearSource, NormSource, TableSource};

/// x + norm(out(into(x))), for the input x that attention reads.
#[derive(Debug, Clone, PartialEq)]
pub struct NarrowBranch {
    pub into: LinearSource,
    pub out: LinearSource,
    pub norm: NormSource,
}

/// Attention pooling: one learned query attends to every token, and a feed-forward layer follows.
///
/// The feed-forward output is added to its input; the sum is the output of the head.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolingSpec {
    /// The learned query, and its stored shape.
    pub query: String,
    pub query_shape: Vec<usize>,
    pub n_heads: usize,
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    pub norm: NormSource,
    /// First map of the feed-forward layer; the second is the head's own map.
    pub up: LinearSource,
    pub activation: Activation,
}

/// norm(out(act(gate x) · t)), where t = (norm(context e) + row) · mix; e is the token's embedding and row its row in a second
/// table.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBranch {
    pub gate: LinearSource,
    pub activation: Activation,
    pub out: LinearSource,
    pub out_norm: NormSource,
    /// The usual token embedding, and the factor of its rows.
    pub tokens: TableSource,
    pub token_scale: f32,
    pub context: LinearSource,
    /// Multiplies the output of `context`, before the norm.
    pub context_scale: f32,
    pub context_norm: NormSource,
    /// Table whose rows hold the embeddings of all blocks, the factor of its rows, and the first column of this block; without a
    /// table, only the context counts.
    pub rows: Option<TableSource>,
    pub row_scale: f32,
    /// The row used for tokens beyond the table.
    pub row_beyond: Option<usize>,
    pub first_column: usize,
    pub mix: f32,
}

impl TokenBranch {
    pub fn linears(&self) -> [&LinearSource; 3] {
        [&self.gate, &self.context, &self.out]
    }

    pub fn norms(&self) -> [&NormSource; 2] {
        [&self.context_norm, &self.out_norm]
    }
}
