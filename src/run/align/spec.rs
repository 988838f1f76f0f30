//! How an alignment attends: one head whose keys are the words of the other sentence.

use attnscope_compute::attention::{AttentionSpec, SoftmaxAxis};
use attnscope_spec::{Ablation, Grid, Stack};

/// The attention of an alignment.
#[derive(Debug, Clone, PartialEq)]
pub struct AlignSpec {
    pub attention: AttentionSpec,
    /// Whether queries and keys are divided by their root mean squares.
    pub qk_norm: bool,
    /// Replacement of the head's output.
    pub ablation: Option<Ablation>,
}

impl AlignSpec {
    /// Plain attention: softmax(Q Kᵀ/√width) over the given axis.
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

    /// Grid of one layer with one head.
    pub fn grid() -> Grid {
        Grid {
            stack: Stack::Cross,
            n_heads: vec![1],
        }
    }
}
