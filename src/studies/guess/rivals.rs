//! Decides whether another answer to a question is within noise of the chosen one.

use attnscope_compute::bootstrap::{interval_of_mean, positions_wanted};

use super::search::State;

/// Mean absolute difference of losses per position up to which two answers count as equal on a text, in nats.
const SAME: f64 = 0.005;
/// Extra handicap from which an answer is a rival only if it wins: between answers that the text does not distinguish, the
/// usual one is taken.
const LESS_USUAL: f64 = 2.5e-3;
/// Width of a 99 % interval in standard errors.
const IN_INTERVAL: f64 = 2.0 * 2.576;
/// Most tokens that a user is asked for.
const MOST_WANTED: usize = 1_000_000;

/// Difference in loss between a rival and the chosen answer, averaged over positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ahead {
    pub mean: f64,
    /// Bounds of the mean's 99 % interval.
    pub low: f64,
    pub high: f64,
    /// Mean absolute difference.
    pub apart: f64,
    /// Number of additional tokens at which a mean of this size would be significant.
    pub n_more: usize,
}

impl Ahead {
    /// Compares the losses of both answers; `None` if they were not run on the same positions, or a loss is not finite.
    pub fn of(chosen: &[f32], rival: &[f32]) -> Option<Self> {
        if chosen.len() != rival.len() || chosen.is_empty() {
            return None;
        }
        let pairs = chosen.iter().zip(rival);
        let more: Vec<f64> = pairs.map(|(a, b)| f64::from(*b) - f64::from(*a)).collect();
        if more.iter().any(|one| !one.is_finite()) {
            return None;
        }
        let n = more.len() as f64;
        let (low, high) = interval_of_mean(&more);
        Some(Self {
            mean: more.iter().sum::<f64>() / n,
            apart: more.iter().map(|one| one.abs()).sum::<f64>() / n,
            n_more: positions_wanted(&more)
                .saturating_sub(more.len())
                .clamp(1, MOST_WANTED),
            low,
            high,
        })
    }

    /// Whether the text does not decide between the two, although their losses differ. A rival that is more usual than the
    /// chosen answer must be worse with 99 % confidence, any other rival by one standard error.
    fn is_open(self, is_more_usual: bool) -> bool {
        let error = (self.high - self.low) / IN_INTERVAL;
        let is_behind = if is_more_usual {
            self.low > 0.0
        } else {
            self.mean > error
        };
        !is_behind && self.apart > SAME
    }
}

/// Whether a rival may be right instead of the chosen answer, given their losses and how usual they are. Answers are listed
/// with the most usual first.
pub fn is_open(
    key: &str,
    (chosen_idx, chosen): (Option<usize>, &State),
    (rival_idx, rival): (usize, &State),
    ahead: Ahead,
) -> bool {
    let handicap = |state: &State| state.handicaps.get(key).copied().unwrap_or(0.0);
    let is_more_usual = chosen_idx.is_none_or(|chosen_idx| rival_idx < chosen_idx)
        || handicap(rival) + LESS_USUAL <= handicap(chosen);
    handicap(rival) < handicap(chosen) + LESS_USUAL && ahead.is_open(is_more_usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_more_usual_rival_must_be_significantly_worse_and_equal_answers_are_not_rivals() {
        let chosen: Vec<f32> = (0..250)
            .map(|idx| ((idx * 7919) % 101) as f32 / 50.0)
            .collect();
        let rival = |more: f32, spread: f32| -> Ahead {
            let off = |idx: usize| more + spread * (((idx * 104_729) % 97) as f32 / 48.0 - 1.0);
            let all: Vec<f32> = chosen
                .iter()
                .enumerate()
                .map(|(idx, loss)| loss + off(idx))
                .collect();
            Ahead::of(&chosen, &all).expect("the same positions")
        };
        // A spread of 0.2 over 250 positions: a standard error of 0.007.
        let near = rival(0.01, 0.2);
        assert!(near.is_open(true) && !near.is_open(false), "{near:?}");
        assert!(near.n_more > 1);
        assert!(rival(0.0006, 0.2).is_open(false));
        assert!(!rival(0.1, 0.2).is_open(true));
        assert!(!rival(0.0, 0.002).is_open(true));
        assert!(Ahead::of(&chosen, &chosen[1..]).is_none());
    }
}
