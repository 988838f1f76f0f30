//! The monitor log of the training that collapses.

/// The log, whose checkpoints at steps 200, 250 and 400 are bundles.
pub const COLLAPSING_LOG: &str = include_str!("../../fixtures/history/run.jsonl");
