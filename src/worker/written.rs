//! A token that the model wrote, as a screen shows it.

use std::collections::BTreeMap;

use attnscope_spec::Stack;

/// One token that the model wrote, as a screen shows it.
#[derive(Debug, Clone)]
pub struct WrittenToken {
    pub label: String,
    /// What the model gave it.
    pub probability: f64,
    /// The likeliest tokens and their probabilities, the first first.
    pub likeliest: Vec<(String, f64)>,
    /// What the heads looked at before it was written; empty where there is no room for more.
    pub rows: StepRows,
}

/// The rows of one query in every head. // (grid, layer, head) → [key]
pub type StepRows = BTreeMap<(Stack, usize, usize), Vec<f32>>;
