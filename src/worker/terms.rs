//! Settings of a worker: device, memory limit and thresholds of checks.

use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;

/// Settings of a worker, which apply to everything it runs.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub device: Device,
    /// Skips the memory check.
    pub is_forced: bool,
    pub thresholds: Thresholds,
}
