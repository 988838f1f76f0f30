//! Products with bf16 weights as they lie in the file, on the matrix tiles (AMX) of processors that have them.
//!
//! An activation is the sum of three bf16 numbers, exactly: the first eight of its 24 digits, the next eight, the rest. Each of the
//! three is multiplied with the weight, which is bf16 already, and all are summed in f32: what comes out is as good as an f32
//! product, and the weights are never widened. `portable` does the same arithmetic, digit for digit, without tiles:
//! it judges them in tests, and once in every process before they are used. Against sums in f64 the error is 1.5e-7 (root mean square,
//! relative) for 768 inputs and 3.1e-7 for 3072, where an f32 product's is 3.5e-7 and 4.1e-7.

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

/// out = x·Wᵀ, or out += x·Wᵀ when `accumulate`, by the engine in use. // x: [row, n_in], out: [row, n_out]
///
/// `did` hears how many multiplications and additions were done, and says whether to go on. Gives whether all was done. A row
/// whose sums are not all finite in some block is computed there once more, in f32 alone, so that infinities and NaN come out as they
/// would without tiles. The bits do not depend on the number of threads.
///
/// # Panics
/// When the shapes do not fit.
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

/// What multiplies packed tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Engine {
    /// The arithmetic of tiles without them: slow, for tests.
    Portable,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(tiles::Granted),
}

impl Engine {
    /// Runs work that calls [`Session::multiply`] on this thread.
    fn with<T>(self, work: impl FnOnce(&Session) -> T) -> T {
        match self {
            Self::Portable => work(&Session::Portable),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(granted) => work(&Session::Tiles(tiles::Configured::new(granted))),
        }
    }
}

/// An engine that is ready on the thread it was made on.
enum Session {
    Portable,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(tiles::Configured),
}

impl Session {
    /// Adds to four tiles of sums: two tiles of outputs × two of rows, over as many steps of 32 inputs as are given.
    ///
    /// # Panics
    /// When weights and activations are not of the same number of steps.
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
