//! Settings of a worker: device, memory limit and thresholds of checks.

use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;
use attnscope_live::Code;

/// Settings of a worker, which apply to everything it runs.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub device: Device,
    /// Skips the memory check.
    pub is_forced: bool,
    pub thresholds: Thresholds,
    /// What a Python runs that is started for a live model.
    pub python_code: Code,
}
