//! Batches too large for one process: units of a checkpoint and some prompts, split among independent workers, and merged
//! again.
//!
//! A unit's id is a digest of its content, so a worker can tell whether the unit is done. There are no locks: files appear
//! complete, by a rename, or belong to one process, which appends whole blocks to them.

mod cost;
pub mod digest;
mod expected;
mod findings;
mod listing;
mod measured;
mod of_checkpoint;
mod pack;
mod parts;
mod plan;
mod rows;
mod shard;
mod shares;
mod unit_writer;
mod weights;
mod whole_files;

pub use self::cost::{Cost, MANY};
pub use self::findings::Findings;
pub use self::listing::{Block, Group, Listing};
pub use self::measured::Measured;
pub use self::parts::{Known, Layout, Parts, RowsPlace, State};
pub use self::plan::{Chunk, Plan, PlannedTarget};
pub use self::rows::{Origin, joined, merged};
pub use self::shard::Shard;
pub use self::shares::Share;
pub use self::unit_writer::UnitWriter;
pub use self::weights::Weights;
