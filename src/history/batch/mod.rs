//! Batches too large for one process: units of a checkpoint and some prompts, split among independent workers, and merged
//! again.
//!
//! A unit's id is a digest of its content, so a worker can tell from a file name whether the unit is done. There are no locks:
//! files appear complete, by a rename inside their directory.

pub mod digest;
mod findings;
mod listing;
mod parts;
mod plan;
mod rows;
mod shard;
mod weights;

pub use self::findings::Findings;
pub use self::listing::{Listing, MissingUnit, Unit};
pub use self::parts::{Parts, State};
pub use self::plan::{Chunk, Plan, PlannedTarget};
pub use self::rows::merged;
pub use self::shard::Shard;
pub use self::weights::Weights;
