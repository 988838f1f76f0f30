//! Additions to a block or a head that few families have.

use std::fmt;

use attnscope_compute::ops::Activation;

use super::mixers::TokenMixer;
use super::norm_source::NormSource;
use super::source::{LinearSource, TableSource};

/// A mixer behind attention and feed-forward layer, which run aside: it reads pre(x + map(what they give)) for the residual x, and x
/// becomes x plus what the mixer gives.
#[derive(Debug, Clone, PartialEq)]
pub struct LastMixer {
    pub map: LinearSource,
    pub pre: NormSource,
    pub mixer: TokenMixer,
}

/// x + norm(out(into(x))), for the input x that attention reads.
#[derive(Debug, Clone, PartialEq)]
pub struct NarrowBranch {
    pub into: LinearSource,
    pub out: LinearSource,
    pub norm: NormSource,
}

/// Stored weights of a sum: one of each kind for every dimension of the residual.
#[derive(Debug, Clone, PartialEq)]
pub struct SumWeights {
    pub tensor: String,
    /// The shape in which they are stored; one value stands for all dimensions.
    pub shape: Vec<usize>,
    pub width: usize,
    pub rule: SumRule,
}

/// How the weights of a sum follow from stored values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SumRule {
    /// β = sigmoid(value / temperature) weighs what the branch adds, and √max(1 − β², least) the residual.
    Circle { temperature: f32, least: f32 },
    /// tanh(value) weighs what the branch adds.
    Tanh,
    /// The value weighs the residual.
    OfResidual,
}

impl fmt::Display for SumRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Circle { temperature, least } => {
                write!(f, "sigmoid(value / {temperature}), at least {least}")
            }
            Self::Tanh => f.write_str("tanh(value) of the branch"),
            Self::OfResidual => f.write_str("the value of the residual"),
        }
    }
}

impl SumWeights {
    /// Stored weights of a vector of values.
    pub fn plain(tensor: String, width: usize, rule: SumRule) -> Self {
        Self {
            tensor,
            shape: vec![width],
            width,
            rule,
        }
    }

    /// The weights of the residual and those of what the branch adds, from the stored values.
    pub fn of_both(&self, stored: &[f32]) -> [Vec<f32>; 2] {
        let spread = match stored {
            [value] => vec![*value; self.width],
            values => values.to_vec(),
        };
        self.of_values(&spread)
    }

    fn of_values(&self, stored: &[f32]) -> [Vec<f32>; 2] {
        let ones = || vec![1.0; stored.len()];
        match self.rule {
            SumRule::Tanh => [ones(), stored.iter().map(|v| v.tanh()).collect()],
            SumRule::OfResidual => [stored.to_vec(), ones()],
            SumRule::Circle { temperature, least } => {
                let share = |value: &f32| 1.0 / (1.0 + (-value / temperature).exp());
                let added: Vec<f32> = stored.iter().map(share).collect();
                let rest = |share: &f32| ((1.0 - share) * (1.0 + share)).max(least).sqrt();
                [added.iter().map(rest).collect(), added]
            }
        }
    }
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
