//! attnscope: opens a trained checkpoint, runs its attention layer by layer, and shows what every head does.

pub mod analysis;
pub mod attention;
pub mod checkpoint;
pub mod checks;
pub mod cli;
pub mod error;
pub mod family;
pub mod kernels;
pub mod machine;
pub mod model;
pub mod ops;
pub mod pace;
pub mod prompt;
pub mod report;
pub mod stats;
pub mod tui;
pub mod worker;
