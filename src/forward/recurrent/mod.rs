//! Stacks of LSTM layers: an encoder that reads both ways, and a decoder that attends to it step by step.

mod cell;
mod reader;
mod scoring;
mod writer;

pub use reader::{Ends, read};
pub use writer::write;
