//! Ids of runs, and of compared pairs.

/// Id of a run, to tell events of the run on screen from late ones of older runs.
pub type RunId = u64;

/// A, and the run compared with it.
pub type Pair = (RunId, RunId);
