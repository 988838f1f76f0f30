//! Arithmetic on slices, independent of attention and models.

mod activation;
mod aligned;
pub mod amx;
mod block_rounding;
mod elementwise;
mod few_rows;
pub mod logit_row;
mod product;
pub mod recurrent;
pub mod residual;
mod rounding;
pub mod simd;
pub mod softmax_row;
mod squares;
pub mod stored;
mod tiles;
pub mod vectors;

pub use activation::Activation;
pub use aligned::Aligned;
pub use block_rounding::BlockFormat;
pub use elementwise::{
    activate, add_assign, are_finite, clamped_gate_assign, first_nonfinite, layer_norm,
    multiply_assign, norms_of_rows, rms_norm, scale_assign,
};
pub use few_rows::{FewRows, few_rows};
pub use product::{Matrix, MatrixMut, Onto, Threads, product, product_onto};
pub use rounding::NumberFormat;
pub use squares::sum_of_squares;
pub use stored::{Stored, widen_bf16};
pub use tiles::Tile;
