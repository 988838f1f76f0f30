//! The part of a batch that a worker does, given by a flag or by the scheduler that started it.

use std::str::FromStr;

/// One of several equal shares of the checkpoints, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub idx: usize,
    pub n: usize,
}

impl Shard {
    /// The whole batch.
    pub const WHOLE: Self = Self { idx: 0, n: 1 };

    /// Whether a checkpoint belongs to this share, by its index in the plan.
    pub fn takes(self, target_idx: usize) -> bool {
        target_idx % self.n == self.idx
    }

    /// Reads the share that a scheduler sets in the environment: a Slurm job array, or an indexed Kubernetes Job. `None` if
    /// neither is set, or the number of shares is unknown.
    ///
    /// # Errors
    /// When a variable is not a number, or is out of range.
    pub fn of_environment(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let number = |name: &str| {
            let Some(text) = get(name).filter(|text| !text.trim().is_empty()) else {
                return Ok(None);
            };
            let wrong = |_| format!("{name}={text}: expected a number");
            text.trim().parse::<usize>().map(Some).map_err(wrong)
        };
        let array = (number(TASK)?, number("SLURM_ARRAY_TASK_COUNT")?);
        if let (Some(task), Some(n)) = array {
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let every = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let nth = task.checked_sub(first).map(|after| after / every);
            let nth = nth.filter(|nth| *nth < n);
            let idx = nth.ok_or_else(|| {
                format!(
                    "{TASK}={task}: expected one of {n} tasks from {first} on; number the array without gaps, as in --array=0-{}",
                    n.saturating_sub(1)
                )
            })?;
            return Ok(Some(Self { idx, n }));
        }
        match (number("JOB_COMPLETION_INDEX")?, number("ATTNSCOPE_SHARDS")?) {
            (Some(idx), Some(n)) if idx < n => Ok(Some(Self { idx, n })),
            (Some(idx), Some(n)) => Err(format!(
                "JOB_COMPLETION_INDEX={idx}: expected less than ATTNSCOPE_SHARDS={n}"
            )),
            _ => Ok(None),
        }
    }
}

const TASK: &str = "SLURM_ARRAY_TASK_ID";

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected I/N with I from 0 to N − 1, as in 0/8");
        let (idx, n) = text.split_once('/').ok_or_else(wrong)?;
        let (idx, n) = (idx.trim().parse().ok(), n.trim().parse().ok());
        match (idx, n) {
            (Some(idx), Some(n)) if idx < n => Ok(Self { idx, n }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Shard>, String> {
        Shard::of_environment(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn array(task: &str, first: &str, n: &str) -> Result<Option<Shard>, String> {
        of(&[
            ("SLURM_ARRAY_TASK_ID", task),
            ("SLURM_ARRAY_TASK_MIN", first),
            ("SLURM_ARRAY_TASK_COUNT", n),
        ])
    }

    #[test]
    fn a_shard_flag_counts_from_zero_and_is_refused_out_of_range() {
        assert_eq!("2/8".parse(), Ok(Shard { idx: 2, n: 8 }));
        for text in ["8/8", "1", "a/2", "-1/2", "0/0", "1/2/3", ""] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_checkpoint_belongs_to_exactly_one_share() {
        for target_idx in 0..20 {
            let n_takers = (0..8).filter(|idx| Shard { idx: *idx, n: 8 }.takes(target_idx));
            assert_eq!(n_takers.count(), 1);
        }
        assert!((0..5).all(|target_idx| Shard::WHOLE.takes(target_idx)));
    }

    #[test]
    fn a_slurm_array_is_counted_from_its_first_task() {
        assert_eq!(array("3", "0", "8"), Ok(Some(Shard { idx: 3, n: 8 })));
        assert_eq!(array("8", "1", "8"), Ok(Some(Shard { idx: 7, n: 8 })));
        // A task that is resubmitted alone does everything that is missing.
        assert_eq!(array("5", "5", "1"), Ok(Some(Shard::WHOLE)));
        assert!(array("9", "1", "8").is_err());
        assert!(array("0", "1", "8").is_err());
        assert!(array("x", "0", "8").is_err());
        let by_fours = [
            ("SLURM_ARRAY_TASK_ID", "12"),
            ("SLURM_ARRAY_TASK_MIN", "0"),
            ("SLURM_ARRAY_TASK_STEP", "4"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
        ];
        assert_eq!(of(&by_fours), Ok(Some(Shard { idx: 3, n: 4 })));
    }

    #[test]
    fn a_kubernetes_indexed_job_needs_the_number_of_shares() {
        let job = |index, n| of(&[("JOB_COMPLETION_INDEX", index), ("ATTNSCOPE_SHARDS", n)]);
        assert_eq!(job("2", "4"), Ok(Some(Shard { idx: 2, n: 4 })));
        assert!(job("4", "4").is_err());
        assert_eq!(of(&[("JOB_COMPLETION_INDEX", "2")]), Ok(None));
        assert_eq!(of(&[("SLURM_ARRAY_TASK_ID", "2")]), Ok(None));
        assert_eq!(of(&[]), Ok(None));
    }
}
