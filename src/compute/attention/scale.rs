//! The scale of scores: the factor of a query–key product.

use std::fmt;

/// The factor of a query–key product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// 1/√d_head (Vaswani et al. 2017).
    InvSqrtD,
    /// 1/d_head.
    InvD,
    /// No scaling.
    One,
    /// A factor given by the configuration.
    Factor(f32),
    /// A factor per row that depends on its visible keys; only set by what-ifs.
    OfKeys(OfKeys),
}

/// A scale that depends on the keys of a row: `factor` over a divisor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfKeys {
    pub divisor: KeyDivisor,
    pub factor: f32,
}

/// Divisor for a row of n visible keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyDivisor {
    /// Σ‖k‖.
    SumOfNorms,
    /// Σ‖k‖/n.
    MeanNorm,
    /// √Σ‖k‖².
    RootOfSquares,
    /// (Σ‖k‖^p)^(1/p).
    PNorm(f32),
    /// n·√d_head.
    NSqrtD,
}

impl fmt::Display for KeyDivisor {
    /// Prints the name used in what-ifs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SumOfNorms => f.write_str("sum_key_norms"),
            Self::MeanNorm => f.write_str("mean_key_norm"),
            Self::RootOfSquares => f.write_str("rms_key_norm"),
            Self::PNorm(p) => write!(f, "p_norm:{p}"),
            Self::NSqrtD => f.write_str("n_sqrt_d"),
        }
    }
}

impl Scale {
    /// The factor for heads of width `d_head`; NaN if it depends on the row.
    pub fn factor(self, d_head: usize) -> f32 {
        match self {
            Self::InvSqrtD => 1.0 / (d_head as f32).sqrt(),
            Self::InvD => 1.0 / d_head as f32,
            Self::One => 1.0,
            Self::Factor(factor) => factor,
            Self::OfKeys(_) => f32::NAN,
        }
    }

    /// The factor of a bias that is scaled like the scores: 1/√d_head if the scores have no common factor.
    pub fn of_bias(self, d_head: usize) -> f32 {
        match self {
            Self::OfKeys(_) => Self::InvSqrtD.factor(d_head),
            _ => self.factor(d_head),
        }
    }

    /// The factor of a row whose visible keys have these norms.
    pub fn of_row(self, d_head: usize, k_norms: impl Iterator<Item = f32>) -> f32 {
        let Self::OfKeys(of_keys) = self else {
            return self.factor(d_head);
        };
        let mut n = 0usize;
        let mut largest = 0.0f64;
        let norms = k_norms.map(f64::from).inspect(|norm| {
            n += 1;
            largest = largest.max(*norm);
        });
        let divisor = match of_keys.divisor {
            KeyDivisor::SumOfNorms => norms.sum(),
            KeyDivisor::MeanNorm => norms.sum::<f64>() / n.max(1) as f64,
            KeyDivisor::RootOfSquares => norms.map(|norm| norm * norm).sum::<f64>().sqrt(),
            KeyDivisor::PNorm(p) if p.is_infinite() => {
                norms.for_each(drop);
                largest
            }
            KeyDivisor::PNorm(p) => {
                // Relative to the largest, so that no power overflows.
                let (p, norms) = (f64::from(p), norms.collect::<Vec<_>>());
                let powers = norms.iter().map(|norm| (norm / largest).powf(p));
                largest * powers.sum::<f64>().powf(1.0 / p)
            }
            KeyDivisor::NSqrtD => norms.count() as f64 * (d_head as f64).sqrt(),
        };
        (f64::from(of_keys.factor) / divisor) as f32
    }

    /// The scale divided by `by`.
    #[must_use]
    pub fn divided(self, by: f32, d_head: usize) -> Self {
        match self {
            Self::OfKeys(of_keys) => Self::OfKeys(OfKeys {
                factor: of_keys.factor / by,
                ..of_keys
            }),
            _ => Self::Factor(self.factor(d_head) / by),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvSqrtD => f.write_str("1/sqrt(d_head)"),
            Self::InvD => f.write_str("1/d_head"),
            Self::One => f.write_str("none"),
            Self::Factor(factor) => write!(f, "{factor}"),
            Self::OfKeys(of_keys) => {
                if of_keys.factor == 1.0 {
                    f.write_str("1")?;
                } else {
                    write!(f, "{}", of_keys.factor)?;
                }
                match of_keys.divisor {
                    KeyDivisor::SumOfNorms => f.write_str("/sum of key norms"),
                    KeyDivisor::MeanNorm => f.write_str("/mean key norm"),
                    KeyDivisor::RootOfSquares => {
                        f.write_str("/root of the sum of squared key norms")
                    }
                    KeyDivisor::PNorm(p) => write!(f, "/{p}-norm of key norms"),
                    KeyDivisor::NSqrtD => f.write_str("/(keys * sqrt(d_head))"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_of_a_row_are_computed_from_its_keys() {
        let norms = [3.0f32, 4.0, 12.0];
        let of = |divisor: KeyDivisor| {
            let scale = Scale::OfKeys(OfKeys {
                divisor,
                factor: 1.0,
            });
            f64::from(scale.of_row(16, norms.into_iter())).recip()
        };
        let is = |divisor, expected: f64| {
            let found = of(divisor);
            assert!(
                (found / expected - 1.0).abs() < 1e-6,
                "{divisor:?}: {found}"
            );
        };
        is(KeyDivisor::SumOfNorms, 19.0);
        is(KeyDivisor::MeanNorm, 19.0 / 3.0);
        is(KeyDivisor::RootOfSquares, 13.0);
        is(KeyDivisor::PNorm(2.0), 13.0);
        is(KeyDivisor::PNorm(1.0), 19.0);
        is(KeyDivisor::PNorm(500.0), 12.0);
        is(KeyDivisor::PNorm(f32::INFINITY), 12.0);
        is(KeyDivisor::NSqrtD, 12.0);
    }

    #[test]
    fn a_temperature_divides_any_scale() {
        let halved = Scale::InvSqrtD.divided(2.0, 16);
        assert_eq!(halved.factor(16), 0.125);
        let of_keys = Scale::OfKeys(OfKeys {
            divisor: KeyDivisor::NSqrtD,
            factor: 1.0,
        });
        let halved = of_keys.divided(2.0, 16);
        assert_eq!(halved.of_row(16, [1.0, 1.0].into_iter()), 1.0 / 16.0);
        assert!(halved.factor(16).is_nan());
    }
}
