//! Arithmetic on slices. Knows no attention and no model.

mod elementwise;
mod product;
pub mod simd;
mod tiles;

pub use elementwise::{
    Activation, activate, add_assign, clamped_gate_assign, layer_norm, multiply_assign, rms_norm,
    scale_assign, sum_of_squares,
};
pub use product::{Matrix, MatrixMut, Threads, product};
pub use tiles::{Tile, tiles};
