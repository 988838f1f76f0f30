//! What a run is given beside the model, and what is left of it beside its layers.

use attnscope_forward::Input;

use super::first_nonfinite::NonFinite;
use super::observer::Observer;
use super::predictions::Predictions;
use super::tap::Tap;

/// What a run is to do beside running.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for layer inputs, so that heads can be looked at later; `None` keeps none.
    pub keep_bytes: Option<usize>,
    /// Whether to predict tokens, for models that can.
    pub predicts: bool,
}

/// What is left of a run beside its layers.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub predictions: Option<Predictions>,
    pub nonfinite: Option<NonFinite>,
    /// The tokens that ran, and those of the encoder where there is one.
    pub tokens: Vec<u32>,
    pub source_tokens: Vec<u32>,
}

/// One prompt to run, and who hears of it.
pub struct Job<'a> {
    pub input: &'a Input,
    pub observer: &'a mut dyn Observer,
    pub tap: Option<&'a mut dyn Tap>,
}
