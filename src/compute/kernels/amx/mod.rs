//! Products with bf16 weights in their stored form, on the matrix tiles (AMX) of processors that have them.
//!
//! An f32 activation is exactly the sum of three bf16 numbers: the first eight of its 24 significant bits, the next eight, and
//! the rest. Each of the three is multiplied by the bf16 weight, and all products are summed in f32. The result is nearly as
//! accurate as an f32 product, without widening the weights. `portable` does the same arithmetic, bit for bit, without tiles; tests compare
//! the tiles with it, and so does every process before it uses them. Against sums in f64 the error is 1.5e-7 (root mean square,
//! relative) for 768 inputs and 3.1e-7 for 3072; that of an f32 product is 2.1e-7 and 2.2e-7.

mod pack;
mod portable;
mod product;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tiles;
mod usable;

use super::Threads;
pub use product::Bf16Matrix;

pub use usable::{Bf16Product, choose, is_usable};

/// out = x·Wᵀ, or out += x·Wᵀ when `accumulate`, on the current engine. // x: [row, n_in], out: [row, n_out]
///
/// `did` receives the number of multiply-adds done and returns whether to continue. Returns whether the whole product was
/// computed. In a block with non-finite sums, the affected rows are recomputed in plain f32, so that infinities and NaN come out
/// as without tiles. The result is bit-identical for any number of threads.
///
/// # Panics
/// When the shapes do not match.
pub fn product_bf16(
    out: &mut [f32],
    x: &[f32],
    weights: Bf16Matrix<'_>,
    accumulate: bool,
    did: &(dyn Fn(u64) -> bool + Sync),
) -> bool {
    product::product_by(
        usable::engine().unwrap_or(Engine::Portable),
        Threads::Pool,
        out,
        x,
        weights,
        accumulate,
        did,
    )
}

/// The implementation that multiplies packed tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Engine {
    /// The tiles' arithmetic in plain code: slow, for tests.
    Portable,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(tiles::Granted),
}

impl Engine {
    /// Runs a closure that calls [`Session::multiply`] on this thread.
    fn with<T>(self, work: impl FnOnce(&Session) -> T) -> T {
        match self {
            Self::Portable => work(&Session::Portable),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(granted) => work(&Session::Tiles(tiles::Configured::new(granted))),
        }
    }
}

/// An engine set up for the current thread.
enum Session {
    Portable,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(tiles::Configured),
}

impl Session {
    /// Adds to four tiles of sums (two tiles of outputs × two of rows), over all given steps of 32 inputs.
    ///
    /// # Panics
    /// When weights and activations differ in their number of steps.
    fn multiply(
        &self,
        weights: &[pack::WeightStep],
        activations: &[pack::ActivationStep],
        sums: &mut pack::Sums,
    ) {
        assert_eq!(weights.len(), activations.len(), "steps of a product");
        match self {
            Self::Portable => portable::multiply(weights, activations, sums),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(configured) => configured.multiply(weights, activations, sums),
        }
    }
}
