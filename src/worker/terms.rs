//! On what the worker computes, and where it draws the lines of checks.

use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;

/// Settings of a worker, the same for everything that it runs.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub device: Device,
    /// Runs whatever memory it takes.
    pub is_forced: bool,
    pub thresholds: Thresholds,
}
