//! What a race of readings may cost, and which readings are left out beyond that.

use attnscope_spec::Model;

use super::Reading;

/// Positions of the first round, at most and at least.
pub const FIRST_POSITIONS: usize = 48;

const FEWEST_FIRST: usize = 8;

/// Positions by which a large model shows whether it tells more than word frequencies.
pub const KNOWING_POSITIONS: usize = 64;

/// Positions of texts said twice, of small and of large models.
const COPIED_POSITIONS: usize = 512;

const COPIED_OF_LARGE: usize = 64;

/// Positions of the last round of a large model, at least; else half of what there is.
const FEWEST_LAST: usize = 128;

/// Multiplications of a race that are not worth saving: about a quarter of a second.
const CHEAP: usize = 10_000_000_000;

/// What the first round, and each later one, may cost beyond that, in runs of the model on all positions.
const FIRST_ROUND_COSTS: usize = 2;

const ROUND_COSTS: usize = 1;

/// What a race may cost.
pub struct Costs {
    n_all: usize,
    /// Multiplications of one token.
    of_token: usize,
}

impl Costs {
    pub fn of(model: &Model, n_all: usize) -> Self {
        Self {
            n_all,
            of_token: model.spec.n_multiplications(),
        }
    }

    pub fn is_cheap(&self, n_tokens: usize) -> bool {
        n_tokens.saturating_mul(self.of_token) <= CHEAP
    }

    /// Leaves readings out that the first round cannot pay for: those of single heads first, then the less usual ones of
    /// single layers.
    ///
    /// A model that tells more than word frequencies has its weights where they are read: of a large one other places of
    /// weights are not tried then.
    pub fn leave_out(&self, field: &mut Vec<Reading>, knows: bool) {
        if knows && !self.is_cheap(field.len() * FIRST_POSITIONS) {
            field.retain(|reading| reading.shares_weights);
        }
        let affordable = FIRST_ROUND_COSTS * self.n_all / FEWEST_FIRST;
        let usual = ["no causal mask", "a softmax over queries", "no scale"];
        let is_usual = |reading: &Reading| usual.contains(&reading.claim.name.as_str());
        let steps: [&dyn Fn(&Reading) -> bool; 3] = [
            &|reading| reading.claim.head_idx.is_none(),
            &|reading| reading.claim.layer_idx.is_none() || is_usual(reading),
            &|reading| reading.claim.layer_idx.is_none(),
        ];
        for step in steps {
            // A reading of one layer costs half on average: only what follows the layer runs again.
            let n_whole = field
                .iter()
                .filter(|reading| reading.claim.layer_idx.is_none())
                .count();
            let n = n_whole + (field.len() - n_whole) / 2;
            if n <= affordable || self.is_cheap(n * FIRST_POSITIONS) {
                return;
            }
            field.retain(|reading| step(reading));
        }
    }

    pub fn first_positions(&self, n_field: usize) -> usize {
        let affordable = FIRST_ROUND_COSTS * self.n_all / n_field.max(1);
        let n = if self.is_cheap(n_field * FIRST_POSITIONS) {
            FIRST_POSITIONS
        } else {
            affordable.clamp(FEWEST_FIRST, FIRST_POSITIONS)
        };
        n.min(self.n_all)
    }

    /// Positions of the last round.
    pub fn last_positions(&self) -> usize {
        if self.is_cheap(10 * self.n_all) {
            return self.n_all;
        }
        (self.n_all / 2).max(FEWEST_LAST).min(self.n_all)
    }

    /// How many readings a later round may have.
    pub fn most_readings(&self, n_positions: usize) -> usize {
        let in_cheap = CHEAP / (n_positions * self.of_token).max(1);
        let in_costs = ROUND_COSTS * self.n_all / n_positions.max(1);
        in_cheap.max(in_costs).max(2)
    }

    /// Positions of texts said twice.
    pub fn copied_positions(&self) -> usize {
        if self.is_cheap(2 * COPIED_POSITIONS) {
            COPIED_POSITIONS
        } else {
            COPIED_OF_LARGE
        }
    }
}
