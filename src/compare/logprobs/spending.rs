//! What a search for causes may cost, and in which order readings are tried where it may not try all of them at once.
//!
//! A small model tries its readings together, which reads each weight once. A large one tries them a few at a time, the likeliest first,
//! and stops where one explains almost everything, or where the limit is reached.

use attnscope_run::{Budget, Reading};

use super::side::SideJudgement;

/// Work up to which all readings of a stage run together.
const TOGETHER: Budget = Budget::of_seconds(60.0);

/// What a search of a large model may cost.
const LIMIT: Budget = Budget::of_seconds(300.0);

/// Readings of a large model that run together.
const AT_ONCE: usize = 16;

/// Share from which nothing better is looked for.
pub(super) const ENOUGH: f64 = 0.99;

/// Difference, in mean rounding of bf16, up to which numbers in few bits are likelier than another computation.
const SMALL: f64 = 8.0;

/// Token from which on a departure is late: what acts everywhere shows earlier.
const LATE: usize = 4;

/// The costs of a search so far.
#[derive(Debug)]
pub(super) struct Spending {
    /// Multiplications of one token.
    of_token: u64,
    spent: u64,
    /// Readings that ran, and those that did not because of what they cost.
    pub n_done: usize,
    pub n_left_out: usize,
}

/// How readings are tried.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pacing {
    Together,
    /// So many at a time.
    InParts(usize),
}

impl Spending {
    pub fn new(of_token: usize) -> Self {
        Self {
            of_token: of_token.max(1) as u64,
            spent: 0,
            n_done: 0,
            n_left_out: 0,
        }
    }

    fn cost(&self, n_readings: usize, n_tokens: usize) -> u64 {
        let n = (n_readings as u64).saturating_mul(n_tokens as u64);
        n.saturating_mul(self.of_token)
    }

    /// Whether readings on so many tokens run together.
    pub fn pacing(&self, n_readings: usize, n_tokens: usize) -> Pacing {
        if self.cost(n_readings, n_tokens) <= TOGETHER.multiplications() {
            Pacing::Together
        } else {
            Pacing::InParts(AT_ONCE)
        }
    }

    /// Takes the cost of readings; false, and they count as left out, if the search may not afford them.
    pub fn takes(&mut self, n_readings: usize, n_tokens: usize) -> bool {
        let cost = self.cost(n_readings, n_tokens);
        let is_first = self.spent == 0;
        if !is_first && self.spent.saturating_add(cost) > LIMIT.multiplications() {
            self.n_left_out += n_readings;
            return false;
        }
        self.spent += cost;
        self.n_done += n_readings;
        true
    }
}

/// Puts the readings that a departure suggests in front: those that act far into a text if it begins late, numbers in few bits if it is
/// small and begins at once.
pub(super) fn likeliest_first(field: &mut [Reading], judged: &SideJudgement, bf16: f64) {
    let is_late = judged
        .first
        .as_ref()
        .is_some_and(|first| first.position >= LATE);
    let is_small = judged.mean_abs <= SMALL * bf16;
    field.sort_by_key(|reading| {
        let fits = match (is_late, is_small) {
            (true, _) => reading.acts_late(),
            (false, true) => reading.rounds(),
            (false, false) => !reading.acts_late() && !reading.rounds(),
        };
        !fits
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_try_everything_and_large_ones_stop_at_the_limit() {
        let small = Spending::new(1_000_000);
        assert_eq!(small.pacing(200, 512), Pacing::Together);
        // A billion multiplications for a token.
        let mut large = Spending::new(1_000_000_000);
        assert_eq!(large.pacing(200, 32), Pacing::InParts(AT_ONCE));
        let mut n = 0;
        while large.takes(AT_ONCE, 32) {
            n += AT_ONCE;
        }
        assert_eq!((large.n_done, large.n_left_out), (n, AT_ONCE));
        // 300 seconds as the budget counts them.
        assert!((150..200).contains(&n), "{n}");
        // One part runs, however large the model is.
        assert!(Spending::new(usize::MAX / 64).takes(1, 32));
    }
}
