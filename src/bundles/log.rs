//! Monitor logs of training runs, in pairs that differ in one mistake.

/// The log of the run that collapses. Its checkpoints at steps 150, 250 and 400 are bundles.
pub const COLLAPSING_LOG: &str = include_str!("../../fixtures/history/run.jsonl");

/// The log of the run that does not collapse.
pub const STEADY_LOG: &str = include_str!("../../fixtures/history_steady/run.jsonl");

/// The log of a run whose softmax is moved to queries at step 500.
pub const WATCHED_LOG: &str = include_str!("../../fixtures/histories/watched.jsonl");

/// The log of the same run, whose softmax stays.
pub const WATCHED_TWIN_LOG: &str = include_str!("../../fixtures/histories/watched_healthy.jsonl");
