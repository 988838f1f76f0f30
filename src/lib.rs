//! attnscope: opens a trained checkpoint, runs its attention layer by layer, and shows what every head does.
//!
//! The program's own parts, for its tests; other programs use `attnscope_engine`.

pub mod bundles;
pub mod cli;
