//! Whether another answer to a question is within noise of the chosen one.

use attnscope_compute::bootstrap::{interval_of_mean, positions_wanted};

use super::search::State;

/// The mean difference of losses at a position, whatever its sign, up to which two answers are one and the same on a text, in nats.
const SAME: f64 = 0.005;
/// What an answer has to make up for, beyond that of the chosen one, from which on it is no rival unless it wins: of two answers that
/// text does not tell apart the usual one is taken.
const LESS_USUAL: f64 = 2.5e-3;
/// Standard errors that a 99 % interval holds.
const IN_INTERVAL: f64 = 2.0 * 2.576;
/// More tokens than anyone is asked for.
const MOST_WANTED: usize = 1_000_000;

/// How much more a second answer loses, position by position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ahead {
    pub mean: f64,
    /// The 99 % interval of the mean.
    pub low: f64,
    pub high: f64,
    /// The mean difference, whatever its sign.
    pub apart: f64,
    /// So many more tokens would make so large a mean certain.
    pub n_more: usize,
}

impl Ahead {
    /// What a rival loses more than the chosen answer; `None` where they were not run on the same positions.
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

    /// Whether text does not tell which of the two it is, though they differ on it. A rival that is more usual than the chosen answer
    /// has to be behind for certain, one that is not by a standard error.
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

/// Whether a rival may be right as well as the chosen answer, by what they lose and by how usual they are: answers are listed the most
/// usual first.
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
    fn a_more_usual_rival_has_to_be_behind_for_certain_and_equal_answers_are_no_rivals() {
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
