//! The device of one thread: what a thread puts on a graphics card is its own.

use attnscope_compute::error::Result;
use attnscope_compute::ops::{Compute, Device};

/// A device that is opened when something is first to be computed on it.
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
