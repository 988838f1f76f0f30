//! Random rows of scores with a given norm, mean and standard deviation.

use attnscope_compute::error::Result;
use attnscope_compute::sample::{Distribution, Family, Purpose, Random, Shape};
use attnscope_run::Sweep;
use rayon::prelude::*;

use super::room::{check_count, check_memory, refused};

/// Requested properties of every row; missing ones follow from the others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wanted {
    pub norm: Option<f64>,
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub n_keys: Option<usize>,
}

/// Default number of keys in a row.
const USUAL_KEYS: usize = 32;
/// Largest relative difference between a requested norm and the norm that the other three values give.
const NORM_TOLERANCE: f64 = 0.02;

/// Rows of scores that all have the same norm, mean and standard deviation.
///
/// The three are linked: over n keys ‖s‖² = n·(mean² + std²), with the population standard deviation. Any three of norm, mean,
/// deviation and n determine the fourth. A row is drawn from a family, then shifted and scaled so that its own mean and
/// deviation, not only those of the family, are the requested ones; its norm then follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    pub n_keys: usize,
    pub norm: f64,
    pub mean: f64,
    pub std: f64,
    pub family: Family,
    /// Requested norm, if no whole number of keys gives it exactly.
    pub asked_norm: Option<f64>,
}

impl Drawn {
    /// Derives missing values; by default the mean is 0, there are 32 keys, and the deviation is 1.
    ///
    /// # Errors
    /// When a value is out of range, or the values contradict each other.
    pub fn of(wanted: Wanted, family: Family) -> Result<Self> {
        let Wanted {
            norm,
            mean,
            std,
            n_keys,
        } = wanted;
        for (flag, value) in [("--norm", norm), ("--mean", mean), ("--std", std)] {
            // Larger values overflow when squared and summed.
            if value.is_some_and(|v| !v.is_finite() || v.abs() > 1e150) {
                let value = value.unwrap_or(f64::NAN);
                return Err(refused(format!("{flag} {value}: expected a finite number")));
            }
        }
        for (flag, value) in [("--norm", norm), ("--std", std)] {
            if let Some(value) = value.filter(|v| *v <= 0.0) {
                return Err(refused(format!(
                    "{flag} {value}: expected a number above 0"
                )));
            }
        }
        if let Some(n_keys) = n_keys {
            check_count("--keys", n_keys, 2)?;
        }
        let norm_of = |n: usize, mean: f64, std: f64| (n as f64 * (mean * mean + std * std)).sqrt();
        let keys = n_keys.unwrap_or(USUAL_KEYS);
        let (n_keys, mean, std) = match (norm, mean, std, n_keys) {
            (None, mean, std, _) => (keys, mean.unwrap_or(0.0), std.unwrap_or(1.0)),
            (Some(norm), mean, None, _) => {
                let mean = mean.unwrap_or(0.0);
                let variance = norm * norm / keys as f64 - mean * mean;
                if variance <= 0.0 {
                    return Err(refused(format!(
                        "--norm {norm} --mean {mean}: over {keys} keys the mean alone has norm {:.4}",
                        norm_of(keys, mean, 0.0)
                    )));
                }
                (keys, mean, variance.sqrt())
            }
            (Some(norm), None, Some(std), _) => {
                let square = norm * norm / keys as f64 - std * std;
                // If the deviation alone accounts for the norm, up to rounding, the mean is 0.
                if square < -1e-9 * std * std {
                    return Err(refused(format!(
                        "--norm {norm} --std {std}: over {keys} keys the deviation alone has norm {:.4}",
                        norm_of(keys, 0.0, std)
                    )));
                }
                (keys, square.max(0.0).sqrt(), std)
            }
            (Some(norm), Some(mean), Some(std), Some(n_keys)) => {
                let given = norm_of(n_keys, mean, std);
                if (given / norm - 1.0).abs() > NORM_TOLERANCE {
                    return Err(refused(format!(
                        "--norm {norm} --mean {mean} --std {std} --keys {n_keys}: the last three give norm {given:.4}; leave one out"
                    )));
                }
                (n_keys, mean, std)
            }
            (Some(norm), Some(mean), Some(std), None) => {
                let n = norm * norm / (mean * mean + std * std);
                let n_keys = n.round();
                if !(2.0..=f64::from(u32::MAX)).contains(&n_keys) {
                    return Err(refused(format!(
                        "--norm {norm} --mean {mean} --std {std}: they need norm²/(mean² + std²) = {n:.3} keys; expected 2 or more"
                    )));
                }
                (n_keys as usize, mean, std)
            }
        };
        let has = norm_of(n_keys, mean, std);
        Ok(Self {
            n_keys,
            norm: has,
            mean,
            std,
            family,
            asked_norm: norm.filter(|norm| (has / norm - 1.0).abs() > 1e-9),
        })
    }

    /// Draws one row.
    pub fn row(&self, seed: u64, idx: usize) -> Vec<f64> {
        let distribution = Distribution {
            family: self.family,
            ..Distribution::STANDARD_NORMAL
        };
        let mut random = Random::of(seed, Purpose::Logits, 0, idx);
        let mut row = vec![0.0; self.n_keys];
        distribution.fill(&mut random, &mut row);
        // The second pass removes the rounding error of the first.
        for _ in 0..2 {
            let Shape { mean, std, .. } = Shape::of(&row);
            for value in &mut row {
                *value = (*value - mean) / std;
            }
        }
        for value in &mut row {
            *value = self.mean + self.std * *value;
        }
        row
    }
}

/// Rows per task; `ROWS_HELD` is the number of rows whose figures are in memory at a time.
const ROWS_AT_ONCE: usize = 16;
const ROWS_HELD: usize = 4096;

/// Draws rows one after another and sweeps them.
///
/// # Errors
/// When there are none, too many, or rows too long for the available memory.
pub fn sweep_drawn(drawn: &Drawn, n_draws: usize, seed: u64, scales: &[f64]) -> Result<Sweep> {
    check_count("--draws", n_draws, 1)?;
    let n_threads = rayon::current_num_threads();
    // A row, its visible scores, and two numbers per score while its softmax is computed.
    let held = drawn.n_keys.checked_mul(4 * n_threads);
    check_memory(&format!("rows of {} keys", drawn.n_keys), held)?;
    let mut sweep = Sweep::new(scales);
    for first in (0..n_draws).step_by(ROWS_HELD) {
        let end = n_draws.min(first + ROWS_HELD);
        let starts: Vec<usize> = (first..end).step_by(ROWS_AT_ONCE).collect();
        let parts = starts.par_iter().map(|start| {
            let mut part = Sweep::new(scales);
            for idx in *start..end.min(start + ROWS_AT_ONCE) {
                part.add_row(&drawn.row(seed, idx));
            }
            part
        });
        for part in parts.collect::<Vec<Sweep>>() {
            sweep.join(&part);
        }
    }
    Ok(sweep)
}
