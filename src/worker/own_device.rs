//! The device of one thread: buffers on a graphics card belong to the thread that made them.

use attnscope_compute::error::Result;
use attnscope_compute::ops::{Compute, Device};

/// A device that is opened on first use.
pub(super) struct OwnDevice {
    device: Device,
    open: Option<Compute>,
}

impl OwnDevice {
    pub fn new(device: Device) -> Self {
        Self { device, open: None }
    }

    pub fn kind(&self) -> Device {
        self.device
    }

    /// # Errors
    /// When it cannot be opened.
    pub fn get(&mut self) -> Result<Compute> {
        let compute = match self.open.take() {
            Some(compute) => compute,
            None => self.device.open()?,
        };
        Ok(self.open.insert(compute).clone())
    }
}
