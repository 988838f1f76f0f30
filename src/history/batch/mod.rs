//! Batches that outgrow a process: units of a checkpoint and some prompts, shared out among workers that know nothing of each
//! other, and merged again.
//!
//! A unit's id is a digest of what it is about, so that any worker knows by the name of a file whether it is done. Nothing is
//! locked: files appear whole, by a rename inside their directory.

pub mod digest;
mod findings;
mod listing;
mod parts;
mod plan;
mod rows;
mod shard;
mod weights;

pub use self::findings::Findings;
pub use self::listing::{Absent, Listing, Unit};
pub use self::parts::{Parts, State};
pub use self::plan::{Chunk, Plan, PlannedTarget};
pub use self::rows::merged;
pub use self::shard::Shard;
pub use self::weights::Weights;
