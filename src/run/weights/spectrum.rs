//! Largest singular value of a matrix, computed only as exactly as needed to distinguish the matrix from noise.

use attnscope_compute::kernels::sum_of_squares;
use attnscope_compute::kernels::vectors::{add_scaled, dot_f32};
use rayon::prelude::*;

/// Steps of power iteration. In noise the largest singular values are close together, and few digits are needed.
const STEPS: usize = 24;
const SEED: u64 = 0x5eed;
/// Rows per task.
const ROWS: usize = 64;

/// Largest singular value of a matrix [n_rows, width], divided by the edge σ(√m + √n) of a random matrix whose entries have
/// the same mean square σ². It is a lower bound that power iteration raises until it exceeds `enough`. 0 for a matrix of
/// zeros.
pub(super) fn edge_ratio(matrix: &[f32], width: usize, enough: f64) -> f64 {
    let n_rows = matrix.len() / width.max(1);
    let squares: f64 = matrix
        .par_chunks(ROWS * width.max(1))
        .map(sum_of_squares)
        .collect::<Vec<f64>>()
        .iter()
        .sum();
    if squares == 0.0 || width == 0 {
        return 0.0;
    }
    let sigma = (squares / matrix.len() as f64).sqrt();
    let edge = sigma * ((n_rows as f64).sqrt() + (width as f64).sqrt());
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut vector: Vec<f32> = (0..width).map(|_| random.f32() - 0.5).collect();
    let mut ratio = 0.0;
    for _ in 0..STEPS {
        normalise(&mut vector);
        // Wv and Wᵀ(Wv) in one pass, so that a row is read once: blocks of rows in parallel, summed in order.
        let blocks = matrix.par_chunks(ROWS * width).map(|rows| {
            let mut sum = vec![0.0f32; width];
            let image = rows.chunks(width).map(|row| {
                let by = dot_f32(row, &vector);
                add_scaled(&mut sum, row, by);
                by
            });
            (image.collect(), sum)
        });
        let (images, parts): (Vec<Vec<f32>>, Vec<Vec<f32>>) = blocks.unzip();
        let image = images.concat();
        ratio = (sum_of_squares(&image).sqrt() / edge).max(ratio);
        if !ratio.is_finite() || ratio > enough {
            return ratio;
        }
        vector.fill(0.0);
        for part in parts {
            vector
                .iter_mut()
                .zip(part)
                .for_each(|(sum, value)| *sum += value);
        }
    }
    ratio
}

/// How far the ratio of noise exceeds 1 by chance: largest singular values fluctuate as n^(−2/3) (Tracy and Widom 1994).
pub(super) fn chance(n_rows: usize, width: usize) -> f64 {
    0.5 * (n_rows.min(width).max(1) as f64).powf(-2.0 / 3.0)
}

fn normalise(values: &mut [f32]) {
    let length = sum_of_squares(values).sqrt() as f32;
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal noise with a standard deviation of 0.02.
    fn noise(n_rows: usize, width: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut normal = || {
            let (u, v): (f64, f64) = (1.0 - random.f64(), random.f64());
            ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos() * 0.02) as f32
        };
        (0..n_rows * width).map(|_| normal()).collect()
    }

    fn is_noise(matrix: &[f32], n_rows: usize, width: usize) -> bool {
        edge_ratio(matrix, width, f64::INFINITY) <= 1.05 + chance(n_rows, width)
    }

    #[test]
    fn noise_of_any_shape_and_kind_is_within_its_edge() {
        let tries_all = std::env::var_os("ATTNSCOPE_SLOW").is_some();
        for (n_rows, width) in [
            (8, 8),
            (16, 64),
            (64, 16),
            (128, 128),
            (300, 700),
            (512, 64),
        ] {
            let n_seeds = if n_rows * width > 10_000 && !tries_all {
                4
            } else {
                20
            };
            for seed in 0..n_seeds {
                let normal = noise(n_rows, width, seed);
                assert!(
                    is_noise(&normal, n_rows, width),
                    "{n_rows} × {width}, {seed}"
                );
                let uniform: Vec<f32> = {
                    let mut random = fastrand::Rng::with_seed(seed);
                    (0..n_rows * width).map(|_| random.f32() - 0.5).collect()
                };
                assert!(
                    is_noise(&uniform, n_rows, width),
                    "{n_rows} × {width}, {seed}"
                );
            }
        }
        // Large noise nearly reaches its edge, so the bound is tight.
        assert!(edge_ratio(&noise(300, 700, 1), 700, f64::INFINITY) > 0.93);
    }

    #[test]
    fn identities_and_zeros_are_within_the_edge_and_a_strong_direction_is_not() {
        let n = 96;
        let identity: Vec<f32> = (0..n * n)
            .map(|at| f32::from(u8::from(at % (n + 1) == 0)))
            .collect();
        assert!(is_noise(&identity, n, n));
        assert_eq!(edge_ratio(&vec![0.0; n * n], n, 9.0), 0.0);
        let mut learned = noise(n, n, 3);
        for (at, value) in learned.iter_mut().enumerate() {
            // A rank-one part with a singular value of 1.5 times the edge.
            let (row, column) = (at / n, at % n);
            let sign = |idx: usize| if idx.is_multiple_of(3) { 1.0 } else { -1.0 };
            *value +=
                (1.5 * 0.02 * 2.0 * (n as f64).sqrt() / n as f64) as f32 * sign(row) * sign(column);
        }
        let ratio = edge_ratio(&learned, n, f64::INFINITY);
        assert!((1.2..2.0).contains(&ratio), "{ratio}");
        assert!(edge_ratio(&learned, n, 1.05) > 1.05);
    }
}
