//! The engine of attnscope: opens a checkpoint without Python, runs its attention layer by layer, measures and judges it.
//!
//! It prints nothing and names no terminal.

pub mod analysis;
pub mod caught;
pub mod checkpoint;
pub mod checks;
pub mod compare;
pub mod counted;
pub mod family;
pub mod machine;
pub mod model;
pub mod nearest;
pub mod prompt;
pub mod spec;
pub mod stats;

pub use attnscope_compute::{attention, bootstrap, error, kernels, on_device, ops, pace, sample};

/// A file of the repository's fixtures, for tests.
#[cfg(test)]
fn fixture(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(path)
}
