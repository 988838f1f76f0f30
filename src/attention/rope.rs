//! Rotary positions: the angles, and the rescaling of their frequencies for longer contexts.

use std::f64::consts::TAU;

/// How the frequencies of a rotary embedding are rescaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    None,
    /// All frequencies divided by the factor (position interpolation).
    Linear {
        factor: f64,
    },
    /// Long wavelengths divided by the factor, short ones kept, a smooth band between (Llama 3.1).
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_n_ctx: f64,
    },
}

/// A rotary embedding of queries and keys (Su et al. 2021).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeSpec {
    pub theta: f64,
    /// How many leading dimensions of a head rotate; even.
    pub d_rotary: usize,
    /// Pairs are (0,1)(2,3)… when true, (0, half)(1, half+1)… when false.
    pub interleaved: bool,
    pub scaling: RopeScaling,
}

impl RopeSpec {
    /// Radians per position of each pair. // [d_rotary / 2]
    pub fn frequencies(&self) -> Vec<f64> {
        let d_rotary = self.d_rotary as f64;
        let plain = (0..self.d_rotary / 2)
            .map(|pair_idx| self.theta.powf(-2.0 * pair_idx as f64 / d_rotary));
        plain
            .map(|frequency| self.scaling.apply(frequency))
            .collect()
    }
}

impl RopeScaling {
    fn apply(self, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_n_ctx,
            } => {
                let wavelength = TAU / frequency;
                let longest_kept = original_n_ctx / high_freq_factor;
                let shortest_scaled = original_n_ctx / low_freq_factor;
                if wavelength < longest_kept {
                    frequency
                } else if wavelength > shortest_scaled {
                    frequency / factor
                } else {
                    let keep = (original_n_ctx / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - keep) * frequency / factor + keep * frequency
                }
            }
        }
    }
}

/// Cosines and sines for every position of a sequence.
#[derive(Debug, Clone)]
pub struct RopeTable {
    pub spec: RopeSpec,
    /// [position, d_rotary / 2]
    pub cos: Vec<f32>,
    /// [position, d_rotary / 2]
    pub sin: Vec<f32>,
}

impl RopeTable {
    pub fn new(spec: RopeSpec, positions: &[usize]) -> Self {
        let frequencies = spec.frequencies();
        // Frequencies and angles are rounded to f32 as trained models saw them: at position 10,000 the rounding
        // of an angle is larger than everything else that differs.
        let angles = positions
            .iter()
            .flat_map(|p| frequencies.iter().map(move |f| *p as f32 * *f as f32));
        let (cos, sin) = angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        Self { spec, cos, sin }
    }

    /// Rotates one position of one head in place. // head: [d_head]
    pub fn rotate(&self, position_idx: usize, head: &mut [f32]) {
        let n_pairs = self.spec.d_rotary / 2;
        let cos = &self.cos[position_idx * n_pairs..][..n_pairs];
        let sin = &self.sin[position_idx * n_pairs..][..n_pairs];
        for pair_idx in 0..n_pairs {
            let (a, b) = if self.spec.interleaved {
                (2 * pair_idx, 2 * pair_idx + 1)
            } else {
                (pair_idx, pair_idx + n_pairs)
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos[pair_idx] - y * sin[pair_idx];
            head[b] = y * cos[pair_idx] + x * sin[pair_idx];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RopeSpec = RopeSpec {
        theta: 100.0,
        d_rotary: 8,
        interleaved: false,
        scaling: RopeScaling::None,
    };

    #[test]
    fn the_product_of_rotated_vectors_depends_on_their_distance_alone() {
        for interleaved in [false, true] {
            let table = RopeTable::new(
                RopeSpec {
                    interleaved,
                    ..PLAIN
                },
                &[0, 1, 2, 3, 4, 5],
            );
            let dot = |i: usize, j: usize| {
                let mut q: Vec<f32> = (0..10).map(|v| (v as f32 * 0.3).cos()).collect();
                let mut k: Vec<f32> = (0..10).map(|v| (v as f32 * 0.9).sin()).collect();
                table.rotate(i, &mut q);
                table.rotate(j, &mut k);
                q.iter().zip(&k).map(|(a, b)| a * b).sum::<f32>()
            };
            assert!((dot(5, 3) - dot(2, 0)).abs() < 1e-5);
            assert!((dot(5, 3) - dot(5, 0)).abs() > 1e-3);
        }
    }

    #[test]
    fn llama3_scaling_keeps_short_wavelengths_and_divides_long_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_n_ctx: 64.0,
        };
        assert_eq!(scaling.apply(1.0), 1.0);
        assert_eq!(scaling.apply(0.01), 0.01 / 8.0);
        let between = scaling.apply(TAU / 32.0);
        assert!(between > TAU / 32.0 / 8.0 && between < TAU / 32.0);
    }
}
