//! Checks products with bf16 weights against sums in f64.

use super::Engine;
use super::product::{Bf16Matrix, product_by};
use crate::kernels::{Matrix, MatrixMut, Threads, product, widen_bf16};

/// Numbers of about size 1 with all significant bits in use.
fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // The sum of four uniform numbers is close enough to normal.
    let mut normal = || (0..4).map(|_| next()).sum::<f64>() - 2.0;
    (0..n).map(|_| normal() as f32).collect()
}

fn bf16(values: &[f32]) -> Vec<u16> {
    let bits = values.iter().map(|v| half::bf16::from_f32(*v).to_bits());
    bits.collect()
}

fn wide(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Root mean square and maximum of the error against sums in f64, relative to the root mean square of those sums.
struct Off {
    rms: f64,
    max: f64,
}

fn off(out: &[f32], x: &[f32], weights: &[u16], n_in: usize) -> Off {
    let exact = x.chunks(n_in).flat_map(|x| {
        weights.chunks(n_in).map(|weights| {
            let terms = x
                .iter()
                .zip(weights)
                .map(|(x, w)| f64::from(*x) * f64::from(wide(*w)));
            terms.sum::<f64>()
        })
    });
    let (mut squares, mut of_exact, mut max) = (0.0, 0.0, 0.0_f64);
    for (out, exact) in out.iter().zip(exact) {
        let difference = f64::from(*out) - exact;
        squares += difference * difference;
        of_exact += exact * exact;
        max = max.max(difference.abs());
    }
    let scale = (of_exact / out.len() as f64).sqrt();
    Off {
        rms: (squares / out.len() as f64).sqrt() / scale,
        max: max / scale,
    }
}

fn portable(x: &[f32], weights: &[u16], n_in: usize) -> Vec<f32> {
    let (n_rows, n_out) = (x.len() / n_in, weights.len() / n_in);
    let mut out = vec![f32::NAN; n_rows * n_out];
    let weights = Bf16Matrix::new(weights, n_out, n_in, false);
    assert!(product_by(
        Engine::Portable,
        Threads::Pool,
        &mut out,
        x,
        weights,
        false,
        &|_| true
    ));
    out
}

#[test]
fn the_three_part_product_is_nearly_as_accurate_as_f32() {
    // Measured, relative to the root mean square of the sums: 1.5e-7 and at most 8.5e-7 for 768 inputs, 3.1e-7 and 2.3e-6 for
    // 3072; the f32 product, which sums blocks of terms apart: 2.1e-7 and 1.0e-6, 2.2e-7 and 9.5e-7.
    for (n_in, rms_limit, max_limit) in [(768, 3e-7, 2e-6), (3072, 5e-7, 4e-6)] {
        let (n_rows, n_out) = (48, 96);
        let x = noise(1, n_rows * n_in);
        let weights = bf16(&noise(2, n_out * n_in));
        let off_tiles = off(&portable(&x, &weights, n_in), &x, &weights, n_in);
        let mut plain = vec![0.0; n_rows * n_out];
        let wide: Vec<f32> = weights.iter().map(|bits| wide(*bits)).collect();
        product(
            &mut MatrixMut::new(&mut plain, n_rows, n_out, n_out),
            Matrix::row_major(&x, n_rows, n_in),
            Matrix::row_major(&wide, n_out, n_in).transposed(),
            false,
            Threads::One,
        );
        let off_f32 = off(&plain, &x, &weights, n_in);
        assert!(
            off_tiles.rms < rms_limit
                && off_tiles.max < max_limit
                && off_tiles.rms < 1.5 * off_f32.rms,
            "{n_in} inputs: rms {:.2e} max {:.2e}, f32 rms {:.2e} max {:.2e}",
            off_tiles.rms,
            off_tiles.max,
            off_f32.rms,
            off_f32.max
        );
    }
}

#[test]
fn every_shape_is_computed_completely_with_weights_in_either_order() {
    for (n_rows, n_in, n_out) in [
        (1, 1, 1),
        (16, 32, 16),
        (33, 33, 65),
        (5, 100, 70),
        (515, 40, 130),
    ] {
        let x = noise(3, n_rows * n_in);
        let weights = bf16(&noise(4, n_out * n_in));
        let out = portable(&x, &weights, n_in);
        let off = off(&out, &x, &weights, n_in);
        assert!(off.max < 2e-6, "{n_rows} x {n_in} x {n_out}: {:e}", off.max);
        let by_input: Vec<u16> = (0..n_in)
            .flat_map(|input| weights.iter().skip(input).step_by(n_in).copied())
            .collect();
        let mut added = vec![0.5; out.len()];
        let by_input = Bf16Matrix::new(&by_input, n_out, n_in, true);
        let engine = Engine::Portable;
        let alone = Threads::One;
        assert!(product_by(
            engine,
            alone,
            &mut added,
            &x,
            by_input,
            true,
            &|_| true
        ));
        for (added, out) in added.iter().zip(&out) {
            assert_eq!(*added, 0.5 + out, "{n_rows} x {n_in} x {n_out}");
        }
    }
}

#[test]
fn non_finite_values_give_the_same_results_as_in_f32() {
    let (n_rows, n_in, n_out) = (40, 70, 66);
    let mut x = noise(5, n_rows * n_in);
    let mut weights = bf16(&noise(6, n_out * n_in));
    x[2 * n_in + 7] = f32::NAN;
    x[5 * n_in + 2] = f32::INFINITY;
    // Rounds to infinity in bf16, but gives finite outputs with small weights.
    x[6 * n_in] = f32::MAX;
    weights[3 * n_in] = 0x0080;
    weights[40 * n_in + 9] = 0xff80;
    let out = portable(&x, &weights, n_in);
    let wide = widen_bf16(&weights);
    for (row_idx, (out, x)) in out.chunks(n_out).zip(x.chunks(n_in)).enumerate() {
        for (output_idx, (out, weights)) in out.iter().zip(wide.chunks(n_in)).enumerate() {
            let sum: f32 = x.iter().zip(weights).map(|(x, w)| x * w).sum();
            assert_eq!(
                out.is_nan(),
                sum.is_nan(),
                "row {row_idx} output {output_idx}"
            );
            if sum.is_finite() {
                assert!(
                    (out - sum).abs() <= 1e-4 * sum.abs().max(1.0),
                    "{out} {sum}"
                )
            } else {
                assert!(out.is_nan() || *out == sum, "{out} {sum}")
            }
        }
    }
}

#[test]
fn a_stop_between_blocks_takes_effect() {
    use std::sync::atomic::{AtomicU64, Ordering};

    let (n_rows, n_in, n_out) = (4, 32, 640);
    let x = noise(7, n_rows * n_in);
    let weights = bf16(&noise(8, n_out * n_in));
    let weights = Bf16Matrix::new(&weights, n_out, n_in, false);
    let product = |limit: u64| {
        let done = AtomicU64::new(0);
        let goes_on = |n: u64| done.fetch_add(n, Ordering::SeqCst) + n <= limit;
        let mut out = vec![0.0; n_rows * n_out];
        let engine = Engine::Portable;
        let is_whole = product_by(engine, Threads::One, &mut out, &x, weights, false, &goes_on);
        (is_whole, done.into_inner())
    };
    let all = (n_rows * n_in * n_out) as u64;
    assert_eq!(product(u64::MAX / 2), (true, all));
    let (is_whole, done) = product(all / 4);
    assert!(!is_whole && done < all / 2, "{done} of {all}");
}
