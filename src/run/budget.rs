//! What judging may cost: seconds, counted as multiplications, so that every machine asks the same.

/// Multiplications a second of two cores (ours): a budget in seconds means as many, whatever the machine.
const A_SECOND: f64 = 2e10;

/// Limit of the work for readings and long prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    seconds: f64,
}

impl Budget {
    /// What `check` spends without being told.
    pub const USUAL: Self = Self { seconds: 10.0 };

    /// What a screen spends beside a run.
    pub const IN_BACKGROUND: Self = Self { seconds: 5.0 };

    pub const fn of_seconds(seconds: f64) -> Self {
        Self { seconds }
    }

    pub fn seconds(self) -> f64 {
        self.seconds
    }

    pub fn multiplications(self) -> u64 {
        (self.seconds * A_SECOND) as u64
    }

    /// Seconds that so many multiplications count as.
    pub fn seconds_of(multiplications: f64) -> f64 {
        multiplications / A_SECOND
    }
}
