//! The declared model with what its layers pass on rounded as bf16 rounds it: how far 16-bit arithmetic moves a loss, token by token.
//!
//! Rounding is stochastic, so that several draws differ: a value becomes one of its two neighbours, with the nearer one more often. Its
//! variance is twice that of rounding to the nearest, which stands for the roundings inside a layer that are not repeated here. Logits are
//! rounded to the nearest, as they leave a 16-bit head.

use attnscope_compute::sample::{Purpose, Random};
use half::bf16;

use super::Reading;

/// One draw of the rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounded {
    draw: u32,
}

impl Rounded {
    /// Rounds a residual after a layer. // [row, width of a row]
    pub fn after_layer(self, mut resid: Vec<f32>, layer_idx: usize) -> Vec<f32> {
        let mut random = Random::of(u64::from(self.draw), Purpose::Rounding, 1, layer_idx);
        for value in &mut resid {
            *value = to_a_neighbour(*value, random.bits());
        }
        resid
    }

    /// Rounds logits.
    pub fn logits(self, logits: &[f32]) -> Vec<f32> {
        logits
            .iter()
            .map(|logit| bf16::from_f32(*logit).to_f32())
            .collect()
    }
}

/// Draws of the declared model with rounded residuals and logits.
pub fn rounded_readings(n_draws: u32) -> Vec<Reading> {
    let of_draw = |draw: u32| Reading {
        rounded: Some(Rounded { draw }),
        ..Reading::declared()
    };
    (0..n_draws).map(of_draw).collect()
}

/// Rounds to bf16, upwards in magnitude where the bits that are cut off exceed `dither`.
fn to_a_neighbour(value: f32, dither: u16) -> f32 {
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits().saturating_add(u32::from(dither));
    f32::from_bits(bits & 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_many_draws_is_the_value() {
        let value = 1.0 + 0.3 / 128.0;
        let n = 4096;
        let draws = (0..n).map(|draw| Rounded { draw }.after_layer(vec![value], 3)[0]);
        let draws: Vec<f32> = draws.collect();
        assert!(draws.iter().all(|v| *v == 1.0 || *v == 1.0 + 1.0 / 128.0));
        let mean = draws.iter().map(|v| f64::from(*v)).sum::<f64>() / f64::from(n);
        assert!((mean - f64::from(value)).abs() < 3e-4, "{mean}");
        assert!(to_a_neighbour(f32::NAN, 9).is_nan());
        assert_eq!(to_a_neighbour(-2.0, u16::MAX), -2.0);
    }
}
