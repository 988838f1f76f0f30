//! What a plan of many units costs: units, files and, once units were measured, time and bytes.

use super::measured::Measured;
use super::parts::Layout;
use super::plan::Plan;

/// Number of units from which a plan counts as large: its units go into directories, and its cost is said before it starts.
pub const MANY: usize = 10_000;
/// Directories by the first two letters of ids.
const N_DIRECTORIES: usize = 256;

/// The size of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    n_checkpoints: usize,
    n_chunks: usize,
    /// Prompts of a chunk at most.
    n_prompts: usize,
    measured: Option<Measured>,
}

impl Cost {
    pub fn of(plan: &Plan) -> Self {
        let lens = plan.chunks.iter().map(|chunk| chunk.prompts.len());
        Self {
            n_checkpoints: plan.targets.len(),
            n_chunks: plan.chunks.len(),
            n_prompts: lens.max().unwrap_or(0),
            measured: None,
        }
    }

    /// Adds what units of the batch took so far.
    pub fn with(self, measured: Option<Measured>) -> Self {
        Self { measured, ..self }
    }

    pub fn n_units(&self) -> usize {
        self.n_checkpoints * self.n_chunks
    }

    /// Whether the plan has many units.
    pub fn is_large(&self) -> bool {
        self.n_units() >= MANY
    }

    /// Describes the cost, in sentences of one line.
    pub fn lines(&self, layout: Layout, n_shards: usize) -> Vec<String> {
        let n_units = self.n_units();
        let [units, checkpoints, chunks] =
            [n_units, self.n_checkpoints, self.n_chunks].map(|n| digits(n as u64));
        let plan = format!(
            "a plan of {units} units: {checkpoints} checkpoints × {chunks} chunks of at most {} prompts",
            self.n_prompts
        );
        let packed = format!(
            "{checkpoints} files in {checkpoints} directories, and one more for each further worker of a checkpoint"
        );
        let n_files = 2 * n_units;
        let files = digits(n_files as u64);
        let written = match layout {
            Layout::Packed(_) => format!("--layout packed writes {packed}"),
            Layout::Directories => {
                let each = digits(n_files.div_ceil(N_DIRECTORIES) as u64);
                format!(
                    "--layout directories writes {files} files in {N_DIRECTORIES} directories, about {each} in each; --layout packed writes {packed}"
                )
            }
            Layout::Files => format!(
                "--layout files writes {files} files in one directory; --layout packed writes {packed}"
            ),
        };
        let measured = match &self.measured {
            None => "time and bytes are unknown until units of this batch have run".to_owned(),
            Some(of) => {
                let [seconds, bytes] =
                    [of.seconds, of.bytes as f64].map(|all| all / of.n_units.max(1) as f64);
                let workers = match n_shards {
                    1 => "one worker".to_owned(),
                    n => format!("each of {n} workers"),
                };
                let hours = duration(seconds * n_units as f64 / n_shards.max(1) as f64);
                format!(
                    "measured on {} units here, {seconds:.3} s and {} a unit: about {hours} for {workers}, and {}",
                    of.n_units,
                    size(bytes),
                    size(bytes * n_units as f64)
                )
            }
        };
        vec![plan, written, measured]
    }
}

/// Writes a number with a space before every three digits.
fn digits(n: u64) -> String {
    let text = n.to_string();
    let mut spaced = String::new();
    for (nth, digit) in text.chars().enumerate() {
        if nth > 0 && (text.len() - nth).is_multiple_of(3) {
            spaced.push(' ');
        }
        spaced.push(digit);
    }
    spaced
}

fn duration(seconds: f64) -> String {
    if seconds < 5400.0 {
        format!("{:.0} minutes", (seconds / 60.0).max(1.0))
    } else {
        format!("{} hours", digits((seconds / 3600.0).round() as u64))
    }
}

/// Writes a number of bytes in the largest unit that gives at least 1.
fn size(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB"].into_iter();
    let mut bytes = bytes;
    for unit in units {
        if bytes < 1024.0 {
            return format!("{bytes:.1} {unit}");
        }
        bytes /= 1024.0;
    }
    format!("{bytes:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_cost_of_a_large_plan_is_its_arithmetic() {
        let cost = Cost {
            n_checkpoints: 10_000,
            n_chunks: 1_563,
            n_prompts: 64,
            measured: None,
        };
        assert!(cost.is_large());
        let lines = cost.lines(Layout::Directories, 1).join("\n");
        for said in [
            "15 630 000 units: 10 000 checkpoints × 1 563 chunks of at most 64 prompts",
            "31 260 000 files in 256 directories, about 122 110 in each",
            "--layout packed writes 10 000 files in 10 000 directories",
            "unknown until units of this batch have run",
        ] {
            assert!(lines.contains(said), "{said:?} in {lines}");
        }
        let measured = Measured {
            n_units: 4,
            seconds: 6.0,
            bytes: 4 << 20,
        };
        let packed = Layout::Packed(Duration::from_secs(5));
        let lines = cost.with(Some(measured)).lines(packed, 1_000).join("\n");
        for said in [
            "1.500 s and 1.0 MiB a unit: about 7 hours for each of 1000 workers, and 14.9 TiB",
            "--layout packed writes 10 000 files",
        ] {
            assert!(lines.contains(said), "{said:?} in {lines}");
        }
    }
}
