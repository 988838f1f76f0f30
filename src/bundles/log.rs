//! The monitor logs of two trainings that are the same but for a slip: one collapses, one does not.

/// The log of the training that collapses, whose checkpoints at steps 150, 250 and 400 are bundles.
pub const COLLAPSING_LOG: &str = include_str!("../../fixtures/history/run.jsonl");

/// The log of its twin.
pub const STEADY_LOG: &str = include_str!("../../fixtures/history_steady/run.jsonl");
