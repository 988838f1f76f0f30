//! Runs of one training in order of steps: read from checkpoints or from a monitor's log, followed while they grow, and
//! judged. A [`History`] is a plain value; readers send it [`Update`]s.

pub mod batch;
pub mod cache;
mod change_point;
mod complete;
mod crossing;
mod document;
mod fingerprint;
mod follow;
mod grid;
mod judge;
mod jumps;
mod layout;
mod lines;
pub mod log;
mod moved;
mod news;
mod of_text;
mod onset;
mod order;
mod read;
mod record;
mod robust;
mod shifts;
mod sources;
mod text;
mod trend;
mod value;
mod wake;
mod weigh;

pub use change_point::{ChangePoint, change_point};
pub use document::{document, rows, table};
pub use fingerprint::Fingerprint;
pub use follow::{Following, Read, RereadQueue, Sink, Sources, list};
pub use grid::{Grid, LayerShape};
pub use judge::{Finding, Judge, change_of};
pub use lines::{LINES, Line, Scope, Side, lines_of};
pub use log::{Batch, batch_of};
pub use news::{News, ReportedChange};
pub use of_text::of_text;
pub use read::Reading;
pub use record::{Numbers, Record, State, UNKNOWN};
pub use sources::{Found, alone, directly_in, is_checkpoint, is_weights, training_in};
pub use text::{beginning, grouped, heading, on_its_way, reasons, told};
pub use trend::Trend;
pub use value::{History, Origin, Update};
