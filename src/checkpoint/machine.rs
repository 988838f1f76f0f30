//! Memory of the machine that a run may still use.

use attnscope_compute::error::{Error, Result};
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Returns the bytes of memory still available, also within a container's limit; `None` if the system does not say.
pub fn available_memory() -> Option<u64> {
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(memory).ok()?;
    let of_machine = Some(system.available_memory()).filter(|n| *n > 0);
    // Without a limit, the container's figure is the machine's total, part of which is in use.
    let of_container = system.cgroup_limits().map(|limits| limits.free_memory);
    match (of_machine, of_container.filter(|n| *n > 0)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Refuses a run that needs more memory than is available.
///
/// # Errors
/// When it does; the message gives both figures, and how to run anyway.
pub fn check_memory(needed: usize) -> Result<()> {
    match too_much(needed) {
        Some(problem) => Err(Error::Device(format!(
            "the run {problem}: shorten the text, or pass --force"
        ))),
        None => Ok(()),
    }
}

/// Gives needed and available memory if too much is needed.
pub fn too_much(needed: usize) -> Option<String> {
    let available = available_memory().filter(|available| needed as u64 > *available)?;
    let (needed, available) = (mebibytes(needed as u64), mebibytes(available));
    Some(format!(
        "needs {needed} of memory, the machine has {available} left"
    ))
}

/// Formats a number of bytes for people.
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
    fn a_run_beyond_the_memory_is_refused_with_both_figures() {
        let said = check_memory(usize::MAX).expect_err("too much").to_string();
        assert!(said.contains("GiB") && said.contains("--force"), "{said}");
        assert!(check_memory(1).is_ok());
    }
}
