//! Random numbers that are the same on every machine and for any number of threads, from five standardised families.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A family of distributions, each with mean 0 and standard deviation 1 before shift and scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Normal,
    Uniform,
    Laplace,
    /// Student's t with 5 degrees of freedom: so heavy-tailed that the sixth moment does not exist.
    T5,
    /// The exponential of a standard normal.
    Lognormal,
}

impl Family {
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::Uniform,
        Self::Laplace,
        Self::T5,
        Self::Lognormal,
    ];

    pub fn id(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Uniform => "uniform",
            Self::Laplace => "laplace",
            Self::T5 => "t5",
            Self::Lognormal => "lognormal",
        }
    }

    pub fn find(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.id() == id)
    }

    /// Whether x and −x are equally likely.
    pub fn is_symmetric(self) -> bool {
        self != Self::Lognormal
    }

    fn standard(self, random: &mut Random) -> f64 {
        match self {
            Self::Normal => random.normal(),
            Self::Uniform => (random.share() - 0.5) * 12f64.sqrt(),
            // By inverting the distribution function; a Laplace distribution of scale b has variance 2b².
            Self::Laplace => {
                let from_middle = random.share() - 0.5;
                let size = -libm::log1p(-2.0 * from_middle.abs()) / 2f64.sqrt();
                size.copysign(from_middle)
            }
            // Z/√(χ²₅/5) has variance 5/3; −2·log u is χ² with two degrees of freedom.
            Self::T5 => {
                let chi_4 = -2.0 * libm::log(random.share() * random.share());
                let fifth = random.normal();
                let chi_5 = chi_4 + fifth * fifth;
                random.normal() / (chi_5 / 5.0).sqrt() / (5f64 / 3.0).sqrt()
            }
            // e^Z has mean √e and variance (e − 1)·e.
            Self::Lognormal => {
                let e = std::f64::consts::E;
                (libm::exp(random.normal()) - e.sqrt()) / ((e - 1.0) * e).sqrt()
            }
        }
    }
}

/// A family with a mean and a standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    pub family: Family,
    pub mean: f64,
    pub std: f64,
}

impl Distribution {
    pub const STANDARD_NORMAL: Self = Self {
        family: Family::Normal,
        mean: 0.0,
        std: 1.0,
    };

    /// Fills a vector with independent components.
    pub fn fill(&self, random: &mut Random, components: &mut [f64]) {
        for component in components {
            *component = self.mean + self.std * self.family.standard(random);
        }
    }
}

/// What a stream of random numbers is used for: each purpose has its own streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Key = 1,
    Query = 2,
    Pair = 3,
    Row = 4,
    Logits = 5,
    Lookup = 6,
    Rounding = 7,
}

/// Largest width and index: both are part of a stream's number.
pub const MOST_WIDE: usize = (1 << 24) - 1;
pub const MOST_VECTORS: usize = u32::MAX as usize;

/// One stream of random numbers. Every vector has its own, so it does not matter which thread draws it. The generator is defined
/// bit by bit, and logarithms do not use the system's library, so results are the same everywhere.
#[derive(Debug, Clone)]
pub struct Random {
    bits: ChaCha8Rng,
    spare: Option<f64>,
}

impl Random {
    /// The stream of one vector, given its purpose, width and index.
    pub fn of(seed: u64, purpose: Purpose, width: usize, idx: usize) -> Self {
        let mut bits = ChaCha8Rng::seed_from_u64(seed);
        bits.set_stream((purpose as u64) << 56 | (width as u64) << 32 | idx as u64);
        Self { bits, spare: None }
    }

    /// Sixteen random bits.
    pub fn bits(&mut self) -> u16 {
        self.bits.next_u32() as u16
    }

    /// A number strictly between 0 and 1.
    fn share(&mut self) -> f64 {
        ((self.bits.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller 1958), which come in pairs: the second one is kept for the next call.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * libm::log(self.share())).sqrt();
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.share());
        self.spare = Some(radius * sin);
        radius * cos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Shape;

    fn sample(family: Family, n: usize) -> Vec<f64> {
        let mut random = Random::of(7, Purpose::Pair, 1, 0);
        (0..n).map(|_| family.standard(&mut random)).collect()
    }

    #[test]
    fn every_family_has_mean_0_and_standard_deviation_1() {
        for family in Family::ALL {
            let shape = Shape::of(&sample(family, 200_000));
            // The lognormal's fourth moment is 114: its variance has a standard error of √(113/200 000) = 0.024.
            assert!(shape.mean.abs() < 0.01, "{} {shape:?}", family.id());
            assert!((shape.std - 1.0).abs() < 0.04, "{} {shape:?}", family.id());
        }
    }

    #[test]
    fn families_match_their_theoretical_tail_probabilities() {
        // Probability above 1 of each standardised family: 1 − Φ(1); (√3 − 1)/(2√3); ½·e^(−√2); P(t₅ > √(5/3)); P(Z > log(√e +
        // √((e−1)e))). For t₅: ½ − (θ + sin θ · cos θ · (1 + ⅔ cos² θ))/π with tan θ = t/√5.
        let above_1 = [0.158_655, 0.211_325, 0.121_558, 0.126_585, 0.090_512];
        for (family, expected) in Family::ALL.into_iter().zip(above_1) {
            let values = sample(family, 200_000);
            let share = values.iter().filter(|v| **v > 1.0).count() as f64 / values.len() as f64;
            assert!(
                (share - expected).abs() < 0.003,
                "{}: {share} for {expected}",
                family.id()
            );
        }
    }

    #[test]
    fn different_streams_give_different_numbers() {
        let first = |purpose, width, idx| Random::of(1, purpose, width, idx).share();
        let mut seen = [
            first(Purpose::Key, 4, 0),
            first(Purpose::Key, 4, 1),
            first(Purpose::Key, 5, 0),
            first(Purpose::Query, 4, 0),
            Random::of(2, Purpose::Key, 4, 0).share(),
        ];
        seen.sort_by(f64::total_cmp);
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    }
}
