//! Which run something belongs to.

/// Tells apart what belongs to the run on screen from what an older one still sends.
pub type RunId = u64;
