//! Input and options of a run, and its results apart from the layers.

use attnscope_forward::Input;

use super::first_nonfinite::NonFinite;
use super::observer::Observer;
use super::predictions::Predictions;
use super::tap::Tap;

/// What a run does besides computing layers.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for layer inputs, so that heads can be inspected later; `None` keeps none.
    pub keep_bytes: Option<usize>,
    /// Whether to predict tokens, if the model can.
    pub predicts: bool,
}

/// Results of a run apart from its layers.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub predictions: Option<Predictions>,
    pub nonfinite: Option<NonFinite>,
    /// Tokens that ran; `source_tokens` are those of the encoder, if there is one.
    pub tokens: Vec<u32>,
    pub source_tokens: Vec<u32>,
}

/// One prompt to run, with the observer and tap that follow the run.
pub struct Job<'a> {
    pub input: &'a Input,
    pub observer: &'a mut dyn Observer,
    pub tap: Option<&'a mut dyn Tap>,
}
