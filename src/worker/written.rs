//! A generated token, as shown on screen.

use std::collections::BTreeMap;

use attnscope_spec::Stack;

/// One generated token, as shown on screen.
#[derive(Debug, Clone)]
pub struct WrittenToken {
    pub label: String,
    /// Probability that the model gave it.
    pub probability: f64,
    /// Likeliest tokens and their probabilities, highest first.
    pub likeliest: Vec<(String, f64)>,
    /// Attention rows of the heads from before it was generated; empty once the memory limit is exceeded.
    pub rows: StepRows,
}

/// Attention rows of one query in every head. // (grid, layer, head) → [key]
pub type StepRows = BTreeMap<(Stack, usize, usize), Vec<f32>>;
