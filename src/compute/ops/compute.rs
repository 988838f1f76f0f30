//! Where a run is computed: on the CPU with one of two engines, or on a CUDA device.

use std::fmt;

use super::{Candle, Cpu};
use crate::error::{Error, Result};

/// A device and the engine that runs on it, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The CPU, with this crate's kernels.
    #[default]
    Cpu,
    /// The CPU, with candle-core's tensors: slower, and independent of this crate's kernels.
    Candle,
    /// A CUDA device by index, with candle-core's tensors.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Candle => f.write_str("candle"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl Device {
    /// Opens the device for the current thread.
    ///
    /// # Errors
    /// When this build has no CUDA support, or there is no such device.
    pub fn open(self) -> Result<Compute> {
        match self {
            Self::Cpu => Ok(Compute::Cpu(Cpu)),
            Self::Candle => Ok(Compute::Candle(Candle::cpu())),
            Self::Cuda(_) if !cfg!(feature = "cuda") => {
                let problem = "this build has no CUDA (cargo build --release --features cuda makes one that has)";
                Err(Error::Device(problem.to_owned()))
            }
            Self::Cuda(ordinal) => Candle::cuda(ordinal)
                .map(Compute::Candle)
                .map_err(|problem| Error::Device(format!("{self} cannot be used ({problem})"))),
        }
    }
}

/// An open device. `on_device!` runs code that is generic over [`super::Ops`] on it.
#[derive(Debug, Clone)]
pub enum Compute {
    Cpu(Cpu),
    Candle(Candle),
}

/// Evaluates an expression with `$ops` bound to the arithmetic of an open device.
///
/// The called code is compiled once per device, so that no step dispatches again.
#[macro_export]
macro_rules! on_device {
    ($compute:expr, $ops:ident => $run:expr) => {
        match $compute {
            $crate::ops::Compute::Cpu($ops) => $run,
            $crate::ops::Compute::Candle($ops) => $run,
        }
    };
}
