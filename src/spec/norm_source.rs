//! Which tensors, or parts of them, hold a norm.

use attnscope_compute::kernels::NumberFormat;
use attnscope_compute::ops::Activation;

use super::factors::OutputFactors;
use super::feed_forward::MlpSpec;
use super::source::LinearSource;

/// The statistic that a norm divides by.
pub use attnscope_compute::ops::NormKind;

/// What multiplies the gain of a norm: 1 + out(act(into x)) for values x that no token changes.
#[derive(Debug, Clone, PartialEq)]
pub struct GainGrowth {
    pub values: Vec<f32>,
    pub into: LinearSource,
    pub activation: Activation,
    pub out: LinearSource,
}

/// A norm and the tensors that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct NormSource {
    pub kind: NormKind,
    pub eps: f32,
    /// Number of values normalised together.
    pub width: usize,
    /// Tensors whose concatenation is the gain; empty if the norm has none.
    pub gain: Vec<String>,
    /// The shape of each gain tensor.
    pub gain_shape: Vec<usize>,
    pub bias: Option<String>,
    /// The gain is 1 plus the stored values.
    pub adds_one: bool,
    /// Gain and bias are tables with a row for each condition, of which the first counts.
    pub has_conditions: bool,
    /// Mean and variance of each value, of a norm that measures neither; the gain is divided by the deviation.
    pub statistics: Option<[String; 2]>,
    /// What multiplies values before the tanh of a norm that is one. // one value, without axes
    pub alpha: Option<String>,
    /// Set if the values of so many groups of columns are normalised over all rows of a sequence together (group norm), before gain and
    /// bias, which are those of a norm that measures nothing.
    pub groups: Option<usize>,
    /// Stored values that multiply the outputs.
    pub factors: Option<OutputFactors>,
    /// Multiplies the gain for a condition that is the same everywhere.
    pub grown: Option<Box<GainGrowth>>,
    /// The sigmoid of this layer's output, which reads that of the norm, multiplies the latter.
    pub gate: Option<Box<MlpSpec>>,
    /// So many first rows of a sequence have a norm of their own. It counts before attention alone.
    pub of_firsts: Option<Box<(usize, NormSource)>>,
    /// Rounds gain and bias after they were read. Set by what-ifs only.
    pub rounded: Option<NumberFormat>,
}

impl NormSource {
    /// A norm of `width` values with one gain.
    pub fn new(kind: NormKind, eps: f64, width: usize, gain: Option<String>) -> Self {
        Self {
            kind,
            eps: eps as f32,
            width,
            gain: gain.into_iter().collect(),
            gain_shape: vec![width],
            bias: None,
            adds_one: false,
            has_conditions: false,
            statistics: None,
            alpha: None,
            groups: None,
            factors: None,
            grown: None,
            gate: None,
            of_firsts: None,
            rounded: None,
        }
    }
}

impl NormSource {
    /// Says where the gain comes from, for comparisons.
    pub fn gain_words(&self) -> &'static str {
        match (self.gain.is_empty(), self.adds_one) {
            _ if self.gate.is_some() => "stored, then a gate",
            _ if self.grown.is_some() => "stored, grown by a condition",
            _ if self.factors.is_some() => "stored, times stored factors",
            (true, _) => "none",
            (_, true) => "1 + stored",
            _ => "stored",
        }
    }
}
