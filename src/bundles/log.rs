//! The monitor logs of two training runs that differ in one mistake: one run collapses, the other does not.

/// The log of the run that collapses. Its checkpoints at steps 150, 250 and 400 are bundles.
pub const COLLAPSING_LOG: &str = include_str!("../../fixtures/history/run.jsonl");

/// The log of the run that does not collapse.
pub const STEADY_LOG: &str = include_str!("../../fixtures/history_steady/run.jsonl");
