//! Norms, activations and sums over rows, in parallel over rows.

use rayon::prelude::*;

/// Elements of one parallel task: large enough to outweigh handing it over.
const TASK: usize = 16 * 1024;

/// Activation functions of feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x·Φ(x) through the error function.
    Gelu,
    /// The tanh approximation of gelu.
    GeluTanh,
    Relu,
    /// x·sigmoid(x).
    Silu,
    /// x·sigmoid(1.702 x), a cheaper likeness of gelu.
    QuickGelu,
    /// The square of relu.
    ReluSquared,
    Tanh,
}

impl Activation {
    fn of(self, x: f32) -> f32 {
        match self {
            Self::Gelu => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
            Self::GeluTanh => {
                const SQRT_2_OVER_PI: f32 = 0.797_884_6;
                0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
            }
            // Not `max`, which would turn NaN into 0.
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
            Self::ReluSquared => {
                let positive = if x < 0.0 { 0.0 } else { x };
                positive * positive
            }
            Self::Tanh => x.tanh(),
        }
    }
}

/// Applies an activation in place.
pub fn activate(activation: Activation, values: &mut [f32]) {
    values.par_chunks_mut(TASK).for_each(|chunk| {
        for value in chunk {
            *value = activation.of(*value);
        }
    });
}

/// `to += from`.
pub fn add_assign(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// `values *= factor`.
pub fn scale_assign(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

/// `up = (clamp(up) + 1) · gate·sigmoid(α·gate)` with gate ≤ limit and |up| ≤ limit; NaN goes through.
pub fn clamped_gate_assign(up: &mut [f32], gate: &[f32], limit: f32, alpha: f32) {
    for (up, gate) in up.iter_mut().zip(gate) {
        let gate = if *gate > limit { limit } else { *gate };
        *up = (up.clamp(-limit, limit) + 1.0) * gate / (1.0 + (-alpha * gate).exp());
    }
}

/// `to *= from`.
pub fn multiply_assign(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to *= from;
    }
}

/// Subtracts each row's mean, divides by its standard deviation, then applies gain and bias where given.
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

/// Divides each row by its root mean square, then applies the gain where given.
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

/// Applies gain and bias; those of several rows' length are for rows in turn.
fn finish(row_idx: usize, row: &mut [f32], gain: Option<&[f32]>, bias: Option<&[f32]>) {
    let of_row = |values: &[f32]| {
        let n_rows = values.len() / row.len();
        let at = row_idx % n_rows.max(1) * row.len();
        at..at + row.len()
    };
    let (gain, bias) = (gain.map(|g| &g[of_row(g)]), bias.map(|b| &b[of_row(b)]));
    if let Some(gain) = gain {
        multiply_assign(row, gain);
    }
    if let Some(bias) = bias {
        add_assign(row, bias);
    }
}

/// Σ v², accumulated in f64.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    // Eight sums side by side, which the compiler keeps in vectors.
    let (chunks, rest) = values.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*v) * f64::from(*v);
        }
    }
    let rest: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    sums.iter().sum::<f64>() + rest
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
