//! `--device`: selects a device, with a fallback.

use anyhow::{Result, anyhow, bail};
use attnscope_compute::ops::{Compute, Device};

/// The device on which a command computes.
pub(super) struct Chosen {
    pub device: Device,
    pub compute: Compute,
    /// Reason for falling back to the CPU, if so.
    pub fell_back: Option<String>,
}

/// Opens the requested device.
///
/// # Errors
/// When the name is unknown, or the device cannot be used.
pub(super) fn choose(asked: &str) -> Result<Chosen> {
    let open = |device: Device| device.open().map(|compute| (device, compute));
    let opened = match asked {
        "cpu" => open(Device::Cpu),
        "candle" => open(Device::Candle),
        "auto" => {
            return match open(Device::Cuda(0)) {
                Ok((device, compute)) => Ok(Chosen {
                    device,
                    compute,
                    fell_back: None,
                }),
                Err(problem) => Ok(Chosen {
                    device: Device::Cpu,
                    compute: Device::Cpu.open()?,
                    fell_back: Some(format!("--device auto: running on the CPU: {problem}")),
                }),
            };
        }
        "cuda" => open(Device::Cuda(0)),
        other => match other.strip_prefix("cuda:").map(str::parse) {
            Some(Ok(ordinal)) => open(Device::Cuda(ordinal)),
            _ => bail!("--device {asked}: expected cpu, candle, cuda, cuda:N or auto"),
        },
    };
    let (device, compute) = opened
        .map_err(|problem| anyhow!("--device {asked}: {problem}; expected cpu, candle or auto"))?;
    Ok(Chosen {
        device,
        compute,
        fell_back: None,
    })
}
