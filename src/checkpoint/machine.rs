//! What the machine has: memory that a run may still take.

use attnscope_compute::error::{Error, Result};
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Bytes of memory that can still be used, a container's limit included; `None` where the system does not say.
pub fn available_memory() -> Option<u64> {
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(memory).ok()?;
    let of_machine = Some(system.available_memory()).filter(|n| *n > 0);
    // Without a limit the container's figure is the machine's total, of which some is in use.
    let of_container = system.cgroup_limits().map(|limits| limits.free_memory);
    match (of_machine, of_container.filter(|n| *n > 0)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Refuses a run that needs more memory than there is.
///
/// # Errors
/// When it does; the message says both, and how to run all the same.
pub fn check_memory(needed: usize) -> Result<()> {
    match too_much(needed) {
        Some(problem) => Err(Error::Device(format!(
            "the run {problem}: shorten the text, or pass --force"
        ))),
        None => Ok(()),
    }
}

/// Says what is needed and what there is, where more is needed than there is.
pub fn too_much(needed: usize) -> Option<String> {
    let available = available_memory().filter(|available| needed as u64 > *available)?;
    let (needed, available) = (mebibytes(needed as u64), mebibytes(available));
    Some(format!(
        "needs {needed} of memory, the machine has {available} left"
    ))
}

/// A number of bytes as a person reads it.
pub fn mebibytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib >= 10_240.0 => format!("{:.1} GiB", mib / 1024.0),
        mib => format!("{mib:.0} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_any_machine_has_is_refused_with_both_figures() {
        let said = check_memory(usize::MAX).expect_err("too much").to_string();
        assert!(said.contains("GiB") && said.contains("--force"), "{said}");
        assert!(check_memory(1).is_ok());
    }
}
