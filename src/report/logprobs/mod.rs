//! Log-probabilities of tokens: tables as they are written, the forms in which engines and trainers give them, and what a comparison says.

mod difference;
mod document;
mod full;
mod page;
mod read;
mod rows;

pub use difference::LogProbDifference;
pub use document::Document;
pub use full::FullWriter;
pub use read::{is_logprobs, read_logprobs, read_logprobs_text};
pub use rows::{LogProbRow, LogProbTable};
