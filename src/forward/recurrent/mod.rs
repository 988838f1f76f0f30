//! Stacks of LSTM layers: a bidirectional encoder, and a decoder that attends to it step by step.

mod cell;
mod ends;
mod reader;
mod scoring;
mod writer;

pub use ends::FinalStates;
pub use reader::read;
pub use writer::write;
