//! Divisors of attention scores: √d and other proposed scalings, each computed from the norms of the keys.

use std::borrow::Cow;

/// Rule for the number that query-key products are divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Divisor {
    None,
    /// √d (Vaswani et al. 2017).
    SqrtD,
    /// Σ‖k‖ over the keys: `k_total`.
    SumKeyNorms,
    /// Σ‖k‖/n.
    MeanKeyNorm,
    /// √Σ‖k‖²: the Frobenius norm of the keys.
    RootSumSquares,
    /// (Σ‖k‖^p)^(1/p); the largest norm for p = ∞.
    PNorm(f64),
    /// n·√d: the expected Σ‖k‖ for standard normal components.
    NSqrtD,
}

impl Divisor {
    /// Every rule without a parameter.
    const PLAIN: [Self; 6] = [
        Self::None,
        Self::SqrtD,
        Self::SumKeyNorms,
        Self::MeanKeyNorm,
        Self::RootSumSquares,
        Self::NSqrtD,
    ];

    /// Every rule, with p = 3 for the p-norm.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::SqrtD,
        Self::MeanKeyNorm,
        Self::PNorm(3.0),
        Self::RootSumSquares,
        Self::SumKeyNorms,
        Self::NSqrtD,
    ];

    /// Name of the rule in `--what-if scale=`.
    pub fn id(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::None => "none",
            Self::SqrtD => "inv_sqrt_d",
            Self::SumKeyNorms => "sum_key_norms",
            Self::MeanKeyNorm => "mean_key_norm",
            Self::RootSumSquares => "rms_key_norm",
            Self::PNorm(p) => return Cow::Owned(format!("p_norm:{p}")),
            Self::NSqrtD => "n_sqrt_d",
        })
    }

    /// Formula shown in tables and plots.
    pub fn formula(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::None => "none",
            Self::SqrtD => "√d",
            Self::SumKeyNorms => "Σ‖k‖",
            Self::MeanKeyNorm => "Σ‖k‖/n",
            Self::RootSumSquares => "√Σ‖k‖²",
            Self::PNorm(p) if p == f64::INFINITY => "max ‖k‖",
            Self::PNorm(p) => return Cow::Owned(format!("{p}-norm ‖k‖")),
            Self::NSqrtD => "n√d",
        })
    }

    /// Parses an id.
    ///
    /// # Errors
    /// When it is unknown; lists the known ones.
    pub fn parse(id: &str) -> Result<Self, String> {
        if let Some(plain) = Self::PLAIN.into_iter().find(|divisor| divisor.id() == id) {
            return Ok(plain);
        }
        let p = id.strip_prefix("p_norm:").and_then(|p| p.parse().ok());
        match p {
            Some(p) if p >= 1.0 => Ok(Self::PNorm(p)),
            Some(_) => Err(format!("{id}: expected p of 1 or more, or inf")),
            None => {
                let known = Self::PLAIN.map(|divisor| divisor.id().into_owned());
                Err(format!(
                    "{id:?} is not a divisor; known: {}, p_norm:P",
                    known.join(", ")
                ))
            }
        }
    }

    /// Value of the divisor, for keys of these norms and this width.
    pub fn value(self, norms: &[f64], d: usize) -> f64 {
        let n = norms.len() as f64;
        let sum = || norms.iter().sum::<f64>();
        match self {
            Self::None => 1.0,
            Self::SqrtD => (d as f64).sqrt(),
            Self::SumKeyNorms => sum(),
            Self::MeanKeyNorm => sum() / n,
            Self::RootSumSquares => norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt(),
            Self::PNorm(p) => p_norm(norms, p),
            Self::NSqrtD => n * (d as f64).sqrt(),
        }
    }
}

/// Computed relative to the largest norm, so that no power overflows.
fn p_norm(norms: &[f64], p: f64) -> f64 {
    let largest = norms.iter().copied().fold(0.0, f64::max);
    if p == f64::INFINITY || largest == 0.0 {
        return largest;
    }
    let powers = norms.iter().map(|norm| libm::pow(norm / largest, p));
    largest * libm::pow(powers.sum(), 1.0 / p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_divisor_equals_its_formula() {
        let norms = [3.0, 4.0, 12.0];
        let expected = [
            (Divisor::None, 1.0),
            (Divisor::SqrtD, 5.0),
            (Divisor::SumKeyNorms, 19.0),
            (Divisor::MeanKeyNorm, 19.0 / 3.0),
            (Divisor::RootSumSquares, 13.0),
            (Divisor::PNorm(1.0), 19.0),
            (Divisor::PNorm(2.0), 13.0),
            // 27 + 64 + 1728 = 1819.
            (Divisor::PNorm(3.0), 1819f64.cbrt()),
            (Divisor::PNorm(f64::INFINITY), 12.0),
            (Divisor::NSqrtD, 15.0),
        ];
        for (divisor, value) in expected {
            let found = divisor.value(&norms, 25);
            assert!((found - value).abs() < 1e-12, "{divisor:?}: {found}");
        }
    }

    #[test]
    fn ids_parse_back_and_unknown_ids_are_refused_with_the_known_ones() {
        for divisor in Divisor::ALL {
            assert_eq!(Divisor::parse(&divisor.id()), Ok(divisor));
        }
        assert_eq!(
            Divisor::parse("p_norm:inf"),
            Ok(Divisor::PNorm(f64::INFINITY))
        );
        for wrong in ["k_total", "p_norm:0.5", "p_norm:NaN", "p_norm:"] {
            let said = Divisor::parse(wrong).expect_err("refused");
            assert!(said.contains(wrong), "{said}");
        }
    }
}
