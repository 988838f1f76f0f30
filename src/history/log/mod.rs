//! The monitor's log: JSON Lines that a training appends to, read from the beginning and followed as it grows.

mod facts;
mod header;
mod line;
mod masks;
mod reader;

pub use facts::{BatchFacts, Labels, Loss, Reads};
pub use header::{Header, is_monitor_log};
pub use line::{Item, Logged};
pub use masks::{Mask, MaskKind, Masks, Reach};
pub use reader::{BadLine, Batch, LogReader, batch_of};
