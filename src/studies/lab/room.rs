//! Refuses simulations of invalid size, or larger than the machine's memory, before anything is drawn.

use attnscope_checkpoint::machine::{available_memory, mebibytes};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::sample::{Distribution, MOST_VECTORS, MOST_WIDE};

/// Largest magnitude of means and deviations: beyond it, fourth powers of products overflow f64.
const FARTHEST: f64 = 1e6;

pub(super) fn refused(problem: String) -> Error {
    Error::Setting(problem)
}

/// Refuses a count outside of the supported range.
pub(super) fn check_count(flag: &str, count: usize, least: usize) -> Result<()> {
    let most = if flag == "--d" {
        MOST_WIDE
    } else {
        MOST_VECTORS
    };
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(refused(format!(
        "{flag} {count}: expected {least} to {most}"
    )))
}

/// Refuses invalid distributions.
pub(super) fn check_distribution(distribution: &Distribution) -> Result<()> {
    let Distribution { mean, std, .. } = *distribution;
    if !mean.is_finite() || mean.abs() > FARTHEST {
        return Err(refused(format!(
            "--mean {mean}: expected a number from -{FARTHEST:e} to {FARTHEST:e}"
        )));
    }
    if !(std > 0.0 && std <= FARTHEST) {
        return Err(refused(format!(
            "--std {std}: expected a number above 0, at most {FARTHEST:e}"
        )));
    }
    Ok(())
}

/// Refuses simulations that need more memory than is available. `numbers` is how many f64 are in memory at once, `None` if the
/// count overflows.
pub(super) fn check_memory(what: &str, numbers: Option<usize>) -> Result<()> {
    let Some(bytes) = numbers.and_then(|n| n.checked_mul(size_of::<f64>())) else {
        return Err(refused(format!(
            "{what}: more numbers than any machine can hold"
        )));
    };
    match available_memory() {
        Some(available) if bytes as u64 > available => Err(refused(format!(
            "{what}: needs {} of memory, the machine has {} left",
            mebibytes(bytes as u64),
            mebibytes(available)
        ))),
        _ => Ok(()),
    }
}
