//! Norms, activations and sums over rows, in parallel over rows.

use rayon::prelude::*;

use super::activation::Activation;
use super::simd::{Level, activate_values, row_norms};
use super::squares::sum_of_squares;

/// Elements per parallel task: enough to outweigh the cost of scheduling it.
const TASK: usize = 16 * 1024;

/// Applies an activation in place.
pub fn activate(activation: Activation, values: &mut [f32]) {
    let level = Level::current();
    values
        .par_chunks_mut(TASK)
        .for_each(|chunk| activate_values(level, activation, chunk));
}

/// `to += from`.
pub fn add_assign(to: &mut [f32], from: &[f32]) {
    in_parallel(to, from, |to, from| *to += from);
}

/// Applies `f` to each pair of corresponding values, in parallel.
fn in_parallel(to: &mut [f32], from: &[f32], f: impl Fn(&mut f32, &f32) + Sync) {
    let parts = to.par_chunks_mut(TASK).zip(from.par_chunks(TASK));
    parts.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| f(to, from)));
}

/// `values *= factor`.
pub fn scale_assign(values: &mut [f32], factor: f32) {
    values
        .par_chunks_mut(TASK)
        .for_each(|chunk| chunk.iter_mut().for_each(|value| *value *= factor));
}

/// `up = (clamp(up) + 1) · gate·sigmoid(α·gate)` with gate ≤ limit and |up| ≤ limit; NaN propagates.
pub fn clamped_gate_assign(up: &mut [f32], gate: &[f32], limit: f32, alpha: f32) {
    in_parallel(up, gate, |up, gate| {
        let gate = if *gate > limit { limit } else { *gate };
        *up = (up.clamp(-limit, limit) + 1.0) * gate / (1.0 + (-alpha * gate).exp());
    });
}

/// `to *= from`.
pub fn multiply_assign(to: &mut [f32], from: &[f32]) {
    in_parallel(to, from, |to, from| *to *= from);
}

/// Subtracts each row's mean, divides by its standard deviation, then applies gain and bias if given.
pub fn layer_norm(
    from: &[f32],
    width: usize,
    eps: f32,
    gain: Option<&[f32]>,
    bias: Option<&[f32]>,
    to: &mut [f32],
) {
    by_rows(from, width, to, |row_idx, from, to| {
        let mean = (from.iter().map(|v| f64::from(*v)).sum::<f64>() / width as f64) as f32;
        let variance = from
            .iter()
            .map(|v| f64::from(v - mean) * f64::from(v - mean))
            .sum::<f64>()
            / width as f64;
        let inverse = 1.0 / (variance as f32 + eps).sqrt();
        for (to, from) in to.iter_mut().zip(from) {
            *to = (from - mean) * inverse;
        }
        finish(row_idx, to, gain, bias);
    });
}

/// Divides each row by its root mean square, then applies the gain if given.
pub fn rms_norm(from: &[f32], width: usize, eps: f32, gain: Option<&[f32]>, to: &mut [f32]) {
    by_rows(from, width, to, |row_idx, from, to| {
        let inverse = 1.0 / ((sum_of_squares(from) / width as f64) as f32 + eps).sqrt();
        for (to, from) in to.iter_mut().zip(from) {
            *to = from * inverse;
        }
        finish(row_idx, to, gain, None);
    });
}

fn by_rows(
    from: &[f32],
    width: usize,
    to: &mut [f32],
    row: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) {
    to.par_chunks_mut(width)
        .zip(from.par_chunks(width))
        .enumerate()
        .with_min_len((TASK / width).max(1))
        .for_each(|(row_idx, (to, from))| row(row_idx, from, to));
}

/// Applies gain and bias; if they are several rows long, rows use their parts in turn.
fn finish(row_idx: usize, row: &mut [f32], gain: Option<&[f32]>, bias: Option<&[f32]>) {
    let of_row = |values: &[f32]| {
        let n_rows = values.len() / row.len();
        let at = row_idx % n_rows.max(1) * row.len();
        at..at + row.len()
    };
    let (gain, bias) = (gain.map(|g| &g[of_row(g)]), bias.map(|b| &b[of_row(b)]));
    if let Some(gain) = gain {
        row.iter_mut().zip(gain).for_each(|(v, gain)| *v *= gain);
    }
    if let Some(bias) = bias {
        row.iter_mut().zip(bias).for_each(|(v, bias)| *v += bias);
    }
}

/// Whether no value is NaN or infinite.
pub fn are_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    // Compares bits: a float sum has a fixed order, which would prevent vectorisation.
    let odd = values.iter().fold(0u32, |odd, value| {
        odd | u32::from(value.to_bits() & EXPONENT == EXPONENT)
    });
    odd == 0
}

/// The first value that is NaN or infinite.
pub fn first_nonfinite(values: &[f32]) -> Option<usize> {
    let chunk_idx = values
        .par_chunks(TASK)
        .position_first(|chunk| !are_finite(chunk))?;
    let start = chunk_idx * TASK;
    let rest = values[start..].iter();
    rest.enumerate()
        .find(|(_, value)| !value.is_finite())
        .map(|(offset, _)| start + offset)
}

/// ‖row‖ of every row, in parallel.
pub fn norms_of_rows(values: &[f32], width: usize) -> Vec<f32> {
    let (level, n) = (Level::current(), (TASK / width.max(1)).max(1));
    let chunks = values.par_chunks(n * width.max(1));
    chunks
        .flat_map_iter(|rows| row_norms(level, rows, width, rows.len() / width.max(1), width))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_norm_gives_mean_zero_and_variance_one() {
        let from: Vec<f32> = (0..64)
            .map(|v| (v as f32 * 0.7).sin() * 3.0 + 100.0)
            .collect();
        let mut to = vec![0.0; 64];
        layer_norm(&from, 32, 0.0, None, None, &mut to);
        for row in to.chunks(32) {
            let mean: f32 = row.iter().sum::<f32>() / 32.0;
            let variance: f32 = row.iter().map(|v| v * v).sum::<f32>() / 32.0;
            assert!(
                mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4,
                "{mean} {variance}"
            );
        }
    }

    #[test]
    fn activations_match_their_defining_values() {
        let value = |activation: Activation, x: f32| {
            let mut v = [x];
            activate(activation, &mut v);
            v[0]
        };
        assert!((value(Activation::Gelu, 1.0) - 0.841_344_7).abs() < 1e-6);
        assert!((value(Activation::GeluTanh, 1.0) - 0.841_192).abs() < 1e-5);
        assert!((value(Activation::Silu, 2.0) - 1.761_594).abs() < 1e-5);
        assert_eq!(value(Activation::Relu, -2.0), 0.0);
        assert!(
            value(Activation::Relu, f32::NAN).is_nan(),
            "nothing repairs a NaN"
        );
    }
}
