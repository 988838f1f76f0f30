//! How an alignment attends: one head, its keys the words of the other sentence.

use attnscope_compute::attention::{AttentionSpec, SoftmaxAxis};
use attnscope_spec::{Ablation, Grid, Stack};

/// The attention of an alignment.
#[derive(Debug, Clone, PartialEq)]
pub struct AlignSpec {
    pub attention: AttentionSpec,
    /// Queries and keys are divided by their root mean squares.
    pub qk_norm: bool,
    /// What the output is replaced by.
    pub ablation: Option<Ablation>,
}

impl AlignSpec {
    /// softmax(Q Kᵀ/√width) over an axis.
    pub fn plain(width: usize, axis: SoftmaxAxis) -> Self {
        Self {
            attention: AttentionSpec {
                softmax_axis: axis,
                is_cross: true,
                ..AttentionSpec::plain(1, 1, width, false)
            },
            qk_norm: false,
            ablation: None,
        }
    }

    /// One layer of one head.
    pub fn grid() -> Grid {
        Grid {
            stack: Stack::Cross,
            n_heads: vec![1],
        }
    }
}
