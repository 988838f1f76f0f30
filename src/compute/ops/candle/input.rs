//! The input of attention: the projections of a whole block.

use candle_core::Tensor;

/// Queries, keys and values of all heads, as projected. // [position, n_heads · width]
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
}
