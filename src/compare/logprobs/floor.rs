//! How far log-probabilities may differ through rounding alone.
//!
//! The floor is measured on the model itself where readings can run it: its residuals are rounded to bf16 after every layer and its logits at
//! the end, in several draws, and the root mean square of what that does to a token's log-probability is the token's scale. Arithmetic in f16
//! has three bits more and gives an eighth of it; f32 has sixteen more, of which longer sums and other orders take some away.

/// Precision of a program's arithmetic, as far as its log-probabilities tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    F32,
    F16,
    Bf16,
    /// Farther off than 16-bit arithmetic takes it.
    Beyond,
}

impl Level {
    pub fn label(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Beyond => "beyond bf16",
        }
    }

    /// Largest usual ratio of a difference to a token's scale of bf16.
    pub(super) fn ratio(self) -> f64 {
        match self {
            Self::F32 => MARGIN / 512.0,
            Self::F16 => MARGIN / 8.0,
            Self::Bf16 | Self::Beyond => MARGIN,
        }
    }
}

/// How many times the scale of a token real 16-bit arithmetic may take it, on average: engines round more often than the draws do.
pub(super) const MARGIN: f64 = 3.0;

/// Mean differences that rounding explains, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    pub f32: f64,
    pub f16: f64,
    pub bf16: f64,
    /// Whether it was measured on the model; without one it is what is usual.
    pub is_measured: bool,
    /// The limit that a person set in its place.
    pub given: Option<f64>,
}

/// Mean difference of bf16 where nothing can be measured, in nats: three times what transformers has for the models of `fixtures/logprobs`
/// (docs/logprobs.md). Larger models were not measured.
const USUAL: f64 = 0.02;

impl Floor {
    /// The floor without a model.
    pub fn usual(given: Option<f64>) -> Self {
        Self {
            f32: USUAL / 512.0,
            f16: USUAL / 8.0,
            bf16: USUAL,
            is_measured: false,
            given,
        }
    }

    /// The floor from the scales of all tokens, each in nats.
    pub(super) fn of_scales(scales: impl Iterator<Item = f64>, given: Option<f64>) -> Self {
        let (mut sum, mut n) = (0.0, 0usize);
        for scale in scales {
            (sum, n) = (sum + scale, n + 1);
        }
        // The mean of the magnitude of normal noise is √(2/π) of its scale.
        let mean = MARGIN * (2.0 / std::f64::consts::PI).sqrt() * sum / n.max(1) as f64;
        Self {
            f32: mean / 512.0,
            f16: mean / 8.0,
            bf16: mean,
            is_measured: true,
            given,
        }
    }

    /// The limit that decides without a model.
    pub fn limit(&self) -> f64 {
        self.given.unwrap_or(self.bf16)
    }
}
