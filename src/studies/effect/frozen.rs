//! Norms with a frozen scale, and linear maps, applied backwards: turns weights on the output into weights on the input.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::ops::{HostLinear, NormKind};
use attnscope_forward::{linear_on_host, norm_on_host};
use attnscope_spec::{LinearSource, MlpSpec, NormSource};

/// A norm whose scale is frozen at one input, which makes it an affine map.
pub struct Frozen {
    gain: Option<Vec<f64>>,
    bias: Option<Vec<f64>>,
    /// 1 / the norm's divisor.
    scale: f64,
    centres: bool,
}

impl Frozen {
    /// Reads a norm and freezes it at an input.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape.
    pub fn at(tensors: &Tensors, source: &NormSource, input: &[f64]) -> Result<Self> {
        let norm = norm_on_host(tensors, source)?;
        let n = input.len().max(1) as f64;
        let centres = norm.kind == NormKind::LayerNorm;
        let mean = if centres {
            input.iter().sum::<f64>() / n
        } else {
            0.0
        };
        let squares = input.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect();
        let mut frozen = Self {
            gain: norm.gain.as_deref().map(wide),
            bias: norm.bias.as_deref().map(wide),
            scale: match norm.kind {
                NormKind::Fixed | NormKind::Tanh => 1.0,
                NormKind::LayerNorm | NormKind::RmsNorm => {
                    1.0 / (squares + f64::from(norm.eps)).sqrt()
                }
            },
            centres,
        };
        if norm.kind == NormKind::Tanh {
            let factors = shares_of_tanh(input, f64::from(norm.alpha));
            let times = |gain: Vec<f64>| gain.iter().zip(&factors).map(|(g, f)| g * f).collect();
            frozen.gain = Some(frozen.gain.map_or_else(|| factors.clone(), times));
        }
        if let Some(gate) = source.gate.as_deref() {
            let factors = factors_of(tensors, gate, &frozen.apply(input))?;
            let times =
                |values: Vec<f64>| values.iter().zip(&factors).map(|(v, f)| v * f).collect();
            frozen.bias = frozen.bias.map(times);
            frozen.gain = Some(frozen.gain.map_or_else(|| factors.clone(), times));
        }
        Ok(frozen)
    }

    /// Output of the norm for an input.
    pub fn apply(&self, input: &[f64]) -> Vec<f64> {
        let mut out = self.centred(input);
        self.times_gain(&mut out);
        out.iter_mut().for_each(|value| *value *= self.scale);
        if let Some(bias) = &self.bias {
            out.iter_mut().zip(bias).for_each(|(value, b)| *value += b);
        }
        out
    }

    /// Maps weights on the output to weights on the input, and returns the constant from the bias.
    pub fn back(&self, weights: &[f64]) -> (Vec<f64>, f64) {
        let constant = self.bias.as_ref().map_or(0.0, |bias| dot(bias, weights));
        let mut back = weights.to_vec();
        self.times_gain(&mut back);
        back = self.centred(&back);
        back.iter_mut().for_each(|value| *value *= self.scale);
        (back, constant)
    }

    fn times_gain(&self, values: &mut [f64]) {
        if let Some(gain) = &self.gain {
            values.iter_mut().zip(gain).for_each(|(v, g)| *v *= g);
        }
    }

    fn centred(&self, values: &[f64]) -> Vec<f64> {
        if !self.centres {
            return values.to_vec();
        }
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        values.iter().map(|value| value - mean).collect()
    }
}

/// The factors of a gate behind a norm, which reads the norm's output.
fn factors_of(tensors: &Tensors, gate: &MlpSpec, normed: &[f64]) -> Result<Vec<f64>> {
    let hidden = times(tensors, &gate.up, normed)?;
    let mut hidden: Vec<f32> = hidden.into_iter().map(|v| v as f32).collect();
    activate(gate.activation, &mut hidden);
    let hidden: Vec<f64> = hidden.into_iter().map(f64::from).collect();
    let outputs = times(tensors, &gate.down, &hidden)?;
    Ok(outputs
        .into_iter()
        .map(|v| 1.0 / (1.0 + (-v).exp()))
        .collect())
}

/// Maps weights on a linear map's output to weights on its input, and returns the constant from its bias.
///
/// # Errors
/// When a tensor is missing or has another shape.
pub fn back_through(
    tensors: &Tensors,
    source: &LinearSource,
    weights: &[f64],
) -> Result<(Vec<f64>, f64)> {
    let linear = linear_on_host(tensors, source, &|| false)?;
    let constant = linear.bias.as_deref().map_or(0.0, |bias| {
        let pairs = bias.iter().zip(weights);
        pairs.map(|(b, w)| f64::from(*b) * w).sum()
    });
    Ok((transposed_times(&linear, weights), constant))
}

/// W·input + b.
///
/// # Errors
/// When a tensor is missing or has another shape.
pub fn times(tensors: &Tensors, source: &LinearSource, input: &[f64]) -> Result<Vec<f64>> {
    let linear = linear_on_host(tensors, source, &|| false)?;
    let values = linear.widened();
    let mut out = match linear.bias.as_deref() {
        Some(bias) => bias.iter().map(|b| f64::from(*b)).collect(),
        None => vec![0.0; linear.n_out],
    };
    for (n_out, to) in out.iter_mut().enumerate() {
        for (n_in, value) in input.iter().enumerate() {
            let at = if linear.is_input_major {
                n_in * linear.n_out + n_out
            } else {
                n_out * linear.n_in + n_in
            };
            *to += f64::from(values[at]) * value;
        }
    }
    Ok(out)
}

/// Wᵀ·weights.
fn transposed_times(linear: &HostLinear<'_>, weights: &[f64]) -> Vec<f64> {
    let values = linear.widened();
    if linear.is_input_major {
        let rows = values.chunks(linear.n_out.max(1));
        return rows
            .map(|row| {
                let pairs = row.iter().zip(weights);
                pairs.map(|(v, w)| f64::from(*v) * w).sum()
            })
            .collect();
    }
    let mut back = vec![0.0; linear.n_in];
    for (row, weight) in values.chunks(linear.n_in.max(1)).zip(weights) {
        let pairs = back.iter_mut().zip(row);
        pairs.for_each(|(to, v)| *to += weight * f64::from(*v));
    }
    back
}

/// a + b.
pub fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// What each value is multiplied by in the tanh of it times α.
fn shares_of_tanh(input: &[f64], alpha: f64) -> Vec<f64> {
    let share = |value: &f64| {
        if *value == 0.0 {
            alpha
        } else {
            (alpha * value).tanh() / value
        }
    };
    input.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tanh_is_frozen_as_a_factor_of_each_value() {
        let input = [0.0, -2.0, 0.5];
        let factors = shares_of_tanh(&input, 0.7);
        for (value, factor) in input.iter().zip(&factors) {
            assert!((value * factor - (0.7 * value).tanh()).abs() < 1e-15);
        }
        assert_eq!(factors[0], 0.7);
    }

    #[test]
    fn a_frozen_norm_gives_the_same_number_backwards_and_forwards() {
        let input = [0.5, -2.0, 3.0, 1.0];
        let weights = [1.0, 0.25, -0.5, 2.0];
        for centres in [true, false] {
            let norm = Frozen {
                gain: Some(vec![1.5, 0.5, -1.0, 2.0]),
                bias: Some(vec![0.1, 0.0, 0.3, -0.2]),
                scale: 0.7,
                centres,
            };
            let forwards = dot(&norm.apply(&input), &weights);
            let (back, constant) = norm.back(&weights);
            assert!((dot(&back, &input) + constant - forwards).abs() < 1e-12);
        }
    }
}
