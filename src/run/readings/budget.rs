//! What a race of readings may cost, and which readings are left out beyond that.

use attnscope_spec::Model;

use super::super::budget::Budget;
use super::Reading;

/// Most positions of the first round; `FEWEST_FIRST` is the least.
pub const FIRST_POSITIONS: usize = 48;

const FEWEST_FIRST: usize = 8;

/// Positions of a first round for which it is worth to try every reading.
const WEIGHED_FIRST: usize = 16;

/// Parts of a budget that the first round may take, since it alone has all readings.
const OF_FIRST: u64 = 4;

/// Number of positions that show whether a large model predicts better than word frequencies.
pub const KNOWING_POSITIONS: usize = 64;

/// Positions of repeated texts; `COPIED_OF_LARGE` is for large models.
const COPIED_POSITIONS: usize = 512;

const COPIED_OF_LARGE: usize = 64;

/// Fewest positions in the last round of a large model, if half of all positions is less.
const FEWEST_LAST: usize = 128;

/// Multiplications of a round that are not worth saving: half a second on two cores.
const CHEAP: usize = 10_000_000_000;

/// Number of parts that a budget is divided into: rounds, combinations, beginnings, and repeated texts.
const PARTS: u64 = 10;

/// Cost limit of the first round beyond what the budget has for a round, in runs of the model on all positions; later rounds have `ROUND_COSTS`.
const FIRST_ROUND_COSTS: usize = 2;

const ROUND_COSTS: usize = 1;

/// Cost limits of a race.
pub struct Costs {
    n_all: usize,
    /// Multiplications per token.
    of_token: usize,
    /// Multiplications that a round may cost without being weighed.
    cheap: usize,
    /// Multiplications of a first round within the budget.
    first: usize,
}

impl Costs {
    pub fn of(model: &Model, n_all: usize, budget: Budget) -> Self {
        Self {
            n_all,
            of_token: model.spec.n_multiplications(),
            cheap: CHEAP.max((budget.multiplications() / PARTS) as usize),
            first: CHEAP.max((OF_FIRST * budget.multiplications() / PARTS) as usize),
        }
    }

    /// Seconds that the first round of more readings would take.
    pub fn seconds(&self, n_readings: usize) -> f64 {
        Budget::seconds_of((n_readings * FIRST_POSITIONS) as f64 * self.of_token as f64)
    }

    pub fn is_cheap(&self, n_tokens: usize) -> bool {
        n_tokens.saturating_mul(self.of_token) <= self.cheap
    }

    /// Drops readings that the first round cannot afford: those of single heads, then less usual ones of single layers.
    ///
    /// If a model predicts better than word frequencies, its weights are read from the right places, so a large model does not
    /// try other places for them.
    pub fn leave_out(&self, field: &mut Vec<Reading>, knows: bool) {
        if knows && !self.is_cheap(field.len() * FIRST_POSITIONS) {
            field.retain(|reading| reading.shares_weights);
        }
        let affordable = FIRST_ROUND_COSTS * self.n_all / FEWEST_FIRST;
        let usual = ["no causal mask", "a softmax over queries", "no scale"];
        let is_usual = |reading: &Reading| usual.contains(&reading.hypothesis.name.as_str());
        let steps: [&dyn Fn(&Reading) -> bool; 3] = [
            &|reading| reading.hypothesis.head_idx.is_none(),
            &|reading| reading.hypothesis.layer_idx.is_none() || is_usual(reading),
            &|reading| reading.hypothesis.layer_idx.is_none(),
        ];
        for step in steps {
            // A reading of one layer costs half on average, because only the layers after it run again.
            let n_whole = field
                .iter()
                .filter(|reading| reading.hypothesis.layer_idx.is_none())
                .count();
            let n = n_whole + (field.len() - n_whole) / 2;
            if n <= affordable || n * WEIGHED_FIRST * self.of_token <= self.first {
                return;
            }
            field.retain(|reading| step(reading));
        }
    }

    pub fn first_positions(&self, n_field: usize) -> usize {
        let affordable = FIRST_ROUND_COSTS * self.n_all / n_field.max(1);
        let within = self.first / (n_field * self.of_token).max(1);
        let n = affordable.max(within);
        n.clamp(FEWEST_FIRST, FIRST_POSITIONS).min(self.n_all)
    }

    /// Number of positions in the last round.
    pub fn last_positions(&self) -> usize {
        if self.is_cheap(10 * self.n_all) {
            return self.n_all;
        }
        (self.n_all / 2).max(FEWEST_LAST).min(self.n_all)
    }

    /// Most readings that a later round may have.
    pub fn most_readings(&self, n_positions: usize) -> usize {
        let in_cheap = self.cheap / (n_positions * self.of_token).max(1);
        let in_costs = ROUND_COSTS * self.n_all / n_positions.max(1);
        in_cheap.max(in_costs).max(2)
    }

    /// Most combinations of readings that are tried on the first positions.
    pub fn combinations(&self) -> usize {
        self.cheap / (FIRST_POSITIONS * self.of_token).max(1)
    }

    /// Number of readings that are each tried together with `n` others on the first positions.
    pub fn bases(&self, n: usize) -> usize {
        const MOST: usize = 40;
        let in_cheap = self.cheap / (n * FIRST_POSITIONS * self.of_token).max(1);
        in_cheap.min(MOST)
    }

    /// Positions of repeated texts.
    pub fn copied_positions(&self) -> usize {
        if self.is_cheap(2 * COPIED_POSITIONS) {
            COPIED_POSITIONS
        } else {
            COPIED_OF_LARGE
        }
    }
}
