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

/// One learned query that looks at every token, and the feed-forward layer that follows: a pooling by attention.
///
/// What the layer gives is added to what it reads, and both are the outputs of the head.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSpec {
    /// The learned query, and the shape in which it is stored.
    pub query: String,
    pub query_shape: Vec<usize>,
    pub n_heads: usize,
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    pub norm: NormSource,
    /// The first map of the layer; the second is the head's own.
    pub up: LinearSource,
    pub activation: Activation,
}

/// norm(out(act(gate x) · t)), where t = (norm(context e) + row) · mix for the embedding e of the token and its row in a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBranch {
    pub gate: LinearSource,
    pub activation: Activation,
    pub out: LinearSource,
    pub out_norm: NormSource,
    /// The usual embedding, and what multiplies its rows.
    pub tokens: TableSource,
    pub token_scale: f32,
    pub context: LinearSource,
    /// Multiplies what the map of the usual embedding gives, before the norm.
    pub context_scale: f32,
    pub context_norm: NormSource,
    /// Rows that hold the embeddings of all blocks, what multiplies them, and where this block's begins.
    pub rows: TableSource,
    pub row_scale: f32,
    /// The row of tokens that have none.
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

    pub fn tables(&self) -> [&TableSource; 2] {
        [&self.tokens, &self.rows]
    }
}
