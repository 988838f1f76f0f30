//! Which run something belongs to, and which two are compared.

/// Tells apart what belongs to the run on screen from what an older one still sends.
pub type RunId = u64;

/// A, and what it is compared with.
pub type Pair = (RunId, RunId);
