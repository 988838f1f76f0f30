//! attnscope: opens a trained checkpoint, runs its attention layer by layer, and shows what every head does.
//!
//! The program's own parts, for its tests; other programs use `attnscope_engine`.

pub mod batch;
pub mod bundles;
pub mod cli;
pub mod config;
#[cfg(feature = "hub")]
pub mod fetch;
pub mod history;
pub mod record;
pub mod report;
pub mod signals;
pub mod tui;
pub mod worker;
