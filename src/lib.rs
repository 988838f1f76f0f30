//! attnscope: opens a trained checkpoint, runs its attention layer by layer, and shows what every head does.
//!
//! The program's own parts, for its tests; other programs use `attnscope_engine`.

pub mod batch;
pub mod bundles;
pub mod cli;
pub mod config;
#[cfg(any(feature = "hub", feature = "s3"))]
pub mod fetch;
pub mod history;
pub mod record;
pub mod report;
pub mod signals;
pub mod store;
pub mod tui;
pub mod worker;
