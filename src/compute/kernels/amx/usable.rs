//! Whether tiles are used: if the processor has them, the system allows them, no other instructions were requested, and a test
//! product came out right.

use std::sync::atomic::{AtomicU8, Ordering};

use super::Engine;

static CHOSEN: AtomicU8 = AtomicU8::new(Bf16Product::Best as u8);

/// The implementation of products with weights stored as bf16.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bf16Product {
    /// Tiles if usable, otherwise the f32 product.
    Best,
    /// The tiles' arithmetic without tiles.
    Portable,
    /// The f32 product with widened weights.
    Widened,
}

/// Sets the implementation for the whole process: for tests, which compare them.
#[doc(hidden)]
pub fn choose(product: Bf16Product) {
    CHOSEN.store(product as u8, Ordering::SeqCst);
}

/// Whether bf16 weights should be kept in bf16, for [`super::product_bf16`].
pub fn is_usable() -> bool {
    engine().is_some()
}

pub(super) fn engine() -> Option<Engine> {
    let chosen = CHOSEN.load(Ordering::SeqCst);
    if chosen == Bf16Product::Portable as u8 {
        Some(Engine::Portable)
    } else if chosen == Bf16Product::Widened as u8 {
        None
    } else {
        tiles()
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn tiles() -> Option<Engine> {
    None
}

/// The tile engine, if it works; requested and checked once per process.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tiles() -> Option<Engine> {
    use std::sync::OnceLock;

    use super::tiles::Granted;
    use crate::kernels::simd::Level;

    static CHECKED: OnceLock<Option<Engine>> = OnceLock::new();
    *CHECKED.get_or_init(|| {
        // If other instructions are forced, tiles are not used.
        if !matches!(Level::asked_for(), Ok(None)) {
            return None;
        }
        let engine = Engine::Tiles(Granted::ask()?);
        match differs(engine) {
            None => Some(engine),
            Some(how) => {
                log::warn!("matrix tiles (AMX) are not used: {how}");
                None
            }
        }
    })
}

/// Describes how a small product differs from the portable one; both should be equal bit for bit.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
fn differs(engine: Engine) -> Option<String> {
    use super::product::{Bf16Matrix, product_by};
    use crate::kernels::Threads;

    // One more row and a few more outputs than a pair of tiles, and a partial step of inputs.
    let (n_rows, n_in, n_out) = (33, 77, 35);
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // Between −2 and 2, with all significant bits in use.
        (f64::from(state) / f64::from(1u32 << 30) - 2.0) as f32
    };
    let x: Vec<f32> = (0..n_rows * n_in).map(|_| next()).collect();
    let weights: Vec<u16> = (0..n_out * n_in)
        .map(|_| (next().to_bits() >> 16) as u16)
        .collect();
    let weights = Bf16Matrix::new(&weights, n_out, n_in, false);
    let product = |engine| {
        let mut out = vec![0.0; n_rows * n_out];
        // On this thread only: other threads may be waiting for the result.
        product_by(engine, Threads::One, &mut out, &x, weights, false, &|_| {
            true
        });
        out
    };
    let (found, expected) = (product(engine), product(Engine::Portable));
    let mut pairs = found.iter().zip(&expected);
    let at = pairs.position(|(found, expected)| found.to_bits() != expected.to_bits())?;
    Some(format!(
        "a product is {:e} where it should be {:e}",
        found[at], expected[at]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_for_tiles_always_returns_a_result() {
        // Whatever the result on this processor, it is the same the second time.
        assert_eq!(tiles(), tiles());
        assert_eq!(differs(Engine::Portable), None);
    }
}
