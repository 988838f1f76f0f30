//! Rotary embeddings: the angles, and the rescaling of their frequencies for longer contexts.

use std::f64::consts::TAU;
use std::fmt;

use super::grid_turn::{GridFrequencies, GridTurn, grid_angles, in_turn};

/// How the frequencies of a rotary embedding are rescaled.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// All frequencies divided by the factor (position interpolation).
    Linear {
        factor: f64,
    },
    /// A larger base for all positions, once a sequence is longer than the model's context.
    Dynamic {
        factor: f64,
        n_ctx: f64,
    },
    /// Divides long wavelengths by the factor and keeps short ones, with a smooth transition (Llama 3.1).
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_n_ctx: f64,
    },
    /// Keeps dimensions that rotate fast and divides those that rotate slowly, with a ramp in between (Peng et al. 2023, arXiv
    /// 2309.00071).
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        original_n_ctx: f64,
        /// Rounds the ends of the ramp to whole dimensions.
        truncates: bool,
    },
    /// A divisor per pair: one list for sequences within the original context, one for longer ones (Ding et al. 2024, arXiv
    /// 2402.13753).
    Long {
        short: Vec<f64>,
        long: Vec<f64>,
        original_n_ctx: usize,
    },
}

impl fmt::Display for RopeScaling {
    /// Prints every parameter, so that different scalings print differently.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[f64]| {
            let words: Vec<String> = all.iter().map(f64::to_string).collect();
            words.join(" ")
        };
        match self {
            Self::None => f.write_str("none"),
            Self::Linear { factor } => write!(f, "linear, factor {factor}"),
            Self::Dynamic { factor, n_ctx } => {
                write!(f, "dynamic, factor {factor} beyond {n_ctx} positions")
            }
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_n_ctx,
            } => write!(
                f,
                "llama3, factor {factor}, low {low_freq_factor}, high {high_freq_factor}, trained on {original_n_ctx} positions"
            ),
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_n_ctx,
                truncates,
            } => {
                let ramp = if *truncates { "whole" } else { "fractional" };
                write!(
                    f,
                    "yarn, factor {factor}, fast {beta_fast}, slow {beta_slow}, {ramp} ramp, trained on {original_n_ctx} positions"
                )
            }
            Self::Long {
                short,
                long,
                original_n_ctx,
            } => write!(
                f,
                "longrope, short {}, long {}, trained on {original_n_ctx} positions",
                list(short),
                list(long)
            ),
        }
    }
}

/// The sense in which pairs turn as positions grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeDirection {
    /// From the first dimension of a pair to the second, as in RoFormer.
    Forward,
    /// The other way, as nanochat's code does.
    Backward,
}

impl RopeDirection {
    pub fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

impl fmt::Display for RopeDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// What the cosines and sines are rounded to, as in code that keeps a table of them in the type of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RopePrecision {
    #[default]
    Float32,
    BFloat16,
    Float16,
}

impl RopePrecision {
    pub const ALL: [Self; 3] = [Self::Float32, Self::BFloat16, Self::Float16];

    /// The name of the type, as in PyTorch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::BFloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }

    fn rounded(self, value: f32) -> f32 {
        match self {
            Self::Float32 => value,
            Self::BFloat16 => half::bf16::from_f32(value).to_f32(),
            Self::Float16 => half::f16::from_f32(value).to_f32(),
        }
    }
}

/// A rotary embedding of queries and keys (Su et al. 2021).
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    pub theta: f64,
    /// First dimension of a head that rotates, and the number of dimensions that do: an even number.
    pub first: usize,
    pub d_rotary: usize,
    /// Pairs are (0,1)(2,3)… when true, (0, half)(1, half+1)… when false.
    pub interleaved: bool,
    pub direction: RopeDirection,
    pub scaling: RopeScaling,
    /// A learned factor of the frequency of each pair, after the rescaling; empty if there are none.
    pub pair_factors: Vec<f64>,
    /// Multiplies cosines and sines, so that scores are multiplied by its square.
    pub magnitude: f64,
    /// Applied to cosines and sines after the magnitude.
    pub precision: RopePrecision,
    /// Set if positions are places of a grid: half of the pairs turn by rows, the others by columns.
    pub grid: Option<GridTurn>,
    /// Values turn as keys do.
    pub turns_values: bool,
    /// Keys do not turn, as where they belong to tokens without a place among the queries.
    pub leaves_keys: bool,
    /// Angles of the positions before the grid, by pair: one row for all of them, or a row for each; empty if they do not turn.
    /// // [position, d_rotary / 2]
    pub angles_before: Vec<f32>,
}

impl RopeSpec {
    /// The plain embedding of all `d_head` dimensions, paired by halves.
    pub fn plain(theta: f64, d_head: usize) -> Self {
        Self {
            theta,
            first: 0,
            d_rotary: d_head,
            interleaved: false,
            direction: RopeDirection::Forward,
            scaling: RopeScaling::None,
            pair_factors: Vec::new(),
            magnitude: 1.0,
            precision: RopePrecision::Float32,
            grid: None,
            turns_values: false,
            leaves_keys: false,
            angles_before: Vec::new(),
        }
    }

    /// The embedding that turns as far in the other direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let direction = match self.direction {
            RopeDirection::Forward => RopeDirection::Backward,
            RopeDirection::Backward => RopeDirection::Forward,
        };
        Self {
            direction,
            ..self.clone()
        }
    }

    /// Number of positions supported by a model of `n_ctx`; dynamic scaling supports more.
    pub fn n_ctx(&self, n_ctx: usize) -> usize {
        match self.scaling {
            RopeScaling::Dynamic { factor, .. } => (n_ctx as f64 * factor) as usize,
            _ => n_ctx,
        }
    }

    /// Radians per position of each pair, for a sequence whose last position is `n_positions` − 1; negative if pairs turn
    /// backward. // [d_rotary / 2]
    pub fn frequencies(&self, n_positions: usize) -> Vec<f64> {
        let d = self.d_rotary as f64;
        let theta = match self.scaling {
            RopeScaling::Dynamic { factor, n_ctx } if n_positions as f64 > n_ctx => {
                let grown = factor * n_positions as f64 / n_ctx - (factor - 1.0);
                self.theta * grown.powf(d / (d - 2.0))
            }
            _ => self.theta,
        };
        let plain = (0..self.d_rotary / 2).map(|pair_idx| theta.powf(-2.0 * pair_idx as f64 / d));
        plain
            .enumerate()
            .map(|(pair_idx, frequency)| {
                let learned = self.pair_factors.get(pair_idx).unwrap_or(&1.0);
                self.rescaled(pair_idx, frequency, n_positions) * learned
            })
            .map(|frequency| match self.direction {
                RopeDirection::Forward => frequency,
                RopeDirection::Backward => -frequency,
            })
            .collect()
    }

    fn rescaled(&self, pair_idx: usize, frequency: f64, n_positions: usize) -> f64 {
        match &self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_n_ctx,
            } => {
                let wavelength = TAU / frequency;
                let longest_kept = original_n_ctx / high_freq_factor;
                let shortest_scaled = original_n_ctx / low_freq_factor;
                // If the two bands overlap in a configuration, scaling takes precedence.
                if wavelength > shortest_scaled {
                    frequency / factor
                } else if wavelength < longest_kept {
                    frequency
                } else {
                    let keep = (original_n_ctx / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - keep) * frequency / factor + keep * frequency
                }
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_n_ctx,
                truncates,
            } => {
                let d = self.d_rotary as f64;
                // The dimension that makes this many turns over the original context.
                let dimension = |n_turns: f64| {
                    d * (original_n_ctx / (n_turns * TAU)).ln() / (2.0 * self.theta.ln())
                };
                let (mut low, mut high) = (dimension(*beta_fast), dimension(*beta_slow));
                if *truncates {
                    (low, high) = (low.floor(), high.ceil());
                }
                let low = low.max(0.0);
                let mut high = high.min(d - 1.0);
                if low == high {
                    high += 0.001;
                }
                let divided = ((pair_idx as f64 - low) / (high - low)).clamp(0.0, 1.0);
                frequency / factor * divided + frequency * (1.0 - divided)
            }
            RopeScaling::Long {
                short,
                long,
                original_n_ctx,
            } => {
                let divisors = if n_positions > *original_n_ctx {
                    long
                } else {
                    short
                };
                frequency / divisors[pair_idx]
            }
        }
    }
}

/// Cosines and sines for every position of a sequence.
#[derive(Debug, Clone)]
pub struct RopeTable {
    pub first: usize,
    pub n_pairs: usize,
    pub interleaved: bool,
    /// Where pairs are not interleaved, they are the halves of each of so many parts.
    pub n_parts: usize,
    /// [position, d_rotary / 2]
    pub cos: Vec<f32>,
    /// [position, d_rotary / 2]
    pub sin: Vec<f32>,
    /// Cosines and sines of the second dimension of each pair, if it turns by another angle than the first.
    /// // [position, d_rotary / 2]
    pub of_second: Option<[Vec<f32>; 2]>,
}

impl RopeTable {
    pub fn new(spec: &RopeSpec, positions: &[usize]) -> Self {
        let n_positions = positions.iter().max().map_or(0, |last| last + 1);
        let frequencies = spec.frequencies(n_positions);
        // Frequencies and angles are rounded to f32 as in training: at position 10,000 the rounding of an angle outweighs every
        // other difference.
        let by_position = |p: usize| frequencies.iter().map(move |f| p as f32 * *f as f32);
        let angles = positions.iter().flat_map(|p| match spec.grid {
            None => by_position(*p).collect(),
            Some(grid) => grid_angles((grid, &spec.angles_before), &frequencies, *p),
        });
        let magnitude = spec.magnitude as f32;
        let turned = |angles: Vec<f32>| -> (Vec<f32>, Vec<f32>) {
            let rounded = |value: f32| spec.precision.rounded(value * magnitude);
            let both = |angle: f32| (rounded(angle.cos()), rounded(angle.sin()));
            angles.into_iter().map(both).unzip()
        };
        let takes_turns =
            spec.grid.map(|grid| grid.frequencies) == Some(GridFrequencies::BehindTimeInTurn);
        let angles: Vec<f32> = angles.collect();
        let (angles, of_second) = if takes_turns {
            let rows = angles.chunks(frequencies.len().max(1)).map(in_turn);
            let (first, second): (Vec<_>, Vec<_>) = rows.map(|[a, b]| (a, b)).unzip();
            let (cos, sin) = turned(second.concat());
            (first.concat(), Some([cos, sin]))
        } else {
            (angles, None)
        };
        let (cos, sin) = turned(angles);
        Self {
            first: spec.first,
            n_pairs: spec.d_rotary / 2,
            interleaved: spec.interleaved,
            n_parts: match spec.grid.map(|grid| grid.frequencies) {
                Some(GridFrequencies::Apart) => 2,
                _ => 1,
            },
            cos,
            sin,
            of_second,
        }
    }

    /// Rotates one position of one head in place. // head: [d_head]
    pub fn rotate(&self, position_idx: usize, head: &mut [f32]) {
        let n_pairs = self.n_pairs;
        let head = &mut head[self.first..self.first + 2 * n_pairs];
        let cos = &self.cos[position_idx * n_pairs..][..n_pairs];
        let sin = &self.sin[position_idx * n_pairs..][..n_pairs];
        let [cos_2, sin_2] = match &self.of_second {
            Some(both) => [0, 1].map(|nth| &both[nth][position_idx * n_pairs..][..n_pairs]),
            None => [cos, sin],
        };
        for pair_idx in 0..n_pairs {
            let (a, b) = if self.interleaved {
                (2 * pair_idx, 2 * pair_idx + 1)
            } else {
                let half = n_pairs / self.n_parts;
                let at = pair_idx + pair_idx / half * half;
                (at, at + half)
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos[pair_idx] - y * sin[pair_idx];
            head[b] = y * cos_2[pair_idx] + x * sin_2[pair_idx];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> RopeSpec {
        RopeSpec::plain(100.0, 8)
    }

    #[test]
    fn the_product_of_rotated_vectors_depends_only_on_their_distance() {
        for interleaved in [false, true] {
            let spec = RopeSpec {
                interleaved,
                ..plain()
            };
            let table = RopeTable::new(&spec, &[0, 1, 2, 3, 4, 5]);
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
    fn cosines_and_sines_are_rounded_as_the_table_is_kept() {
        let table = |precision| {
            let spec = RopeSpec {
                precision,
                ..plain()
            };
            RopeTable::new(&spec, &[1])
        };
        // By hand: cos 1 is 0.540302 and sin 1 is 0.841471; 1/256 and 1/2048 are the steps between 1/2 and 1.
        let first = |precision| (table(precision).cos[0], table(precision).sin[0]);
        let (cos, sin) = first(RopePrecision::BFloat16);
        assert_eq!((cos, sin), (138.0 / 256.0, 215.0 / 256.0));
        let (cos, sin) = first(RopePrecision::Float16);
        assert_eq!((cos, sin), (1107.0 / 2048.0, 1723.0 / 2048.0));
        assert_eq!(first(RopePrecision::Float32), (1f32.cos(), 1f32.sin()));
    }

    #[test]
    fn llama3_scaling_keeps_short_wavelengths_and_divides_long_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_n_ctx: 64.0,
        };
        let spec = RopeSpec { scaling, ..plain() };
        assert_eq!(spec.rescaled(0, 1.0, 10), 1.0);
        assert_eq!(spec.rescaled(0, 0.01, 10), 0.01 / 8.0);
        let between = spec.rescaled(0, TAU / 32.0, 10);
        assert!(between > TAU / 32.0 / 8.0 && between < TAU / 32.0);
        // Wavelengths from 64 on are divided, although those up to 128 would be kept.
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 0.5,
            original_n_ctx: 64.0,
        };
        let spec = RopeSpec { scaling, ..plain() };
        assert_eq!(spec.rescaled(0, TAU / 100.0, 10), TAU / 100.0 / 8.0);
        assert_eq!(spec.rescaled(0, TAU / 50.0, 10), TAU / 50.0);
    }

    #[test]
    fn dynamic_and_long_scaling_change_beyond_the_original_context() {
        let spec = RopeSpec {
            scaling: RopeScaling::Dynamic {
                factor: 2.0,
                n_ctx: 16.0,
            },
            ..plain()
        };
        assert_eq!(spec.frequencies(16), plain().frequencies(16));
        // The base grows by (2·32/16 − 1)^(8/6).
        let grown = RopeSpec::plain(100.0 * 3f64.powf(8.0 / 6.0), 8);
        assert_eq!(spec.frequencies(32), grown.frequencies(32));
        let spec = RopeSpec {
            scaling: RopeScaling::Long {
                short: vec![1.0; 4],
                long: vec![2.0; 4],
                original_n_ctx: 16,
            },
            ..plain()
        };
        assert_eq!(spec.frequencies(16), plain().frequencies(16));
        assert_eq!(spec.frequencies(17)[1], plain().frequencies(17)[1] / 2.0);
    }

    #[test]
    fn yarn_keeps_fast_dimensions_and_divides_slow_ones() {
        let spec = RopeSpec {
            scaling: RopeScaling::Yarn {
                factor: 4.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original_n_ctx: 4096.0,
                truncates: true,
            },
            ..RopeSpec::plain(10_000.0, 128)
        };
        let (scaled, plain) = (
            spec.frequencies(10),
            RopeSpec::plain(10_000.0, 128).frequencies(10),
        );
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[63], plain[63] / 4.0);
        assert!(scaled[35] < plain[35] && scaled[35] > plain[35] / 4.0);
    }
}
