//! Chooses the next token from a model's predictions.

use std::borrow::Cow;

use attnscope_prompt::Sampling;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Number of most likely tokens reported beside the chosen one.
const N_TOLD: usize = 10;

/// One token that a model wrote, and the alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub id: u32,
    /// Probability from the model's logits, at temperature 1.
    pub probability: f64,
    /// Whether the token was forced rather than chosen from the predictions.
    pub is_forced: bool,
    /// Most likely tokens, in falling order of probability.
    pub likeliest: Vec<(u32, f64)>,
}

/// Scores and constraints for choosing a token.
pub struct Choice<'a> {
    /// // [token]
    pub scores: Cow<'a, [f32]>,
    /// Tokens that must not be written.
    pub never: Vec<u32>,
    /// Token to write regardless of the scores.
    pub forced: Option<u32>,
}

/// Chooses tokens, with its own random generator.
pub struct Chooser {
    sampling: Sampling,
    random: ChaCha8Rng,
}

impl Chooser {
    pub fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
        }
    }

    /// Chooses a token; `logits` are the model's own, from which the reported probabilities are computed.
    pub fn choose(&mut self, logits: &[f32], choice: &Choice<'_>) -> Written {
        let (scores, forced) = (choice.scores.as_ref(), choice.forced);
        let is_open = |id: &usize| !choice.never.contains(&(*id as u32));
        // Ids by falling score, ties by rising id; a NaN counts as the lowest.
        let key = |id: usize| {
            let logit = scores[id];
            if logit.is_nan() {
                f32::NEG_INFINITY
            } else {
                logit
            }
        };
        let order = |a: &usize, b: &usize| key(*b).total_cmp(&key(*a)).then(a.cmp(b));
        let probabilities = softmax(logits, 1.0);
        let p = |id: usize| probabilities.get(id).copied().unwrap_or(f64::NAN);
        let likeliest = |n: usize| {
            let mut ids: Vec<usize> = (0..logits.len()).filter(is_open).collect();
            let n = n.min(ids.len());
            if n > 0 && n < ids.len() {
                ids.select_nth_unstable_by(n - 1, order);
                ids.truncate(n);
            }
            ids.sort_unstable_by(order);
            ids
        };
        let told = likeliest(N_TOLD);
        let greedy = told.first().copied().unwrap_or(0);
        let id = match forced {
            Some(forced) => forced as usize,
            None if self.sampling.is_greedy() => greedy,
            None => {
                let n = self.sampling.top_k.unwrap_or(logits.len());
                self.draw(scores, &likeliest(n)).unwrap_or(greedy)
            }
        };
        Written {
            id: id as u32,
            probability: p(id),
            is_forced: forced.is_some(),
            likeliest: told.into_iter().map(|id| (id as u32, p(id))).collect(),
        }
    }

    /// Draws one of some ids, sorted by falling score; `None` if the logits cannot be sampled from.
    fn draw(&mut self, logits: &[f32], ids: &[usize]) -> Option<usize> {
        let of_ids: Vec<f32> = ids.iter().map(|id| logits[*id]).collect();
        let weights = softmax(&of_ids, self.sampling.temperature);
        let mut n = ids.len();
        let mut total: f64 = weights.iter().sum();
        if let Some(top_p) = self.sampling.top_p {
            let mut so_far = 0.0;
            let wanted = top_p * total;
            n = weights
                .iter()
                .position(|weight| {
                    so_far += weight;
                    so_far >= wanted
                })
                .map_or(n, |idx| idx + 1);
            total = weights[..n].iter().sum();
        }
        // 53 bits: every multiple of 2⁻⁵³ below 1 is equally likely.
        let drawn = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        if !drawn.is_finite() {
            return None;
        }
        let mut so_far = 0.0;
        let found = weights[..n].iter().position(|weight| {
            so_far += weight;
            drawn < so_far
        });
        found.or(n.checked_sub(1)).map(|idx| ids[idx])
    }
}

/// e^((logit − max)/temperature), divided by its sum.
fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| libm::exp((f64::from(*logit) - f64::from(max)) / temperature);
    let weights: Vec<f64> = logits.iter().map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        chooser: &mut Chooser,
        logits: &[f32],
        never: &[u32],
        forced: Option<u32>,
    ) -> Written {
        let choice = Choice {
            scores: logits.into(),
            never: never.to_vec(),
            forced,
        };
        chooser.choose(logits, &choice)
    }

    fn drawn(sampling: Sampling, logits: &[f32], n: usize) -> Vec<u32> {
        let mut chooser = Chooser::new(sampling);
        let ids = (0..n).map(|_| chosen(&mut chooser, logits, &[], None).id);
        ids.collect()
    }

    #[test]
    fn greedy_choice_takes_the_first_of_the_likeliest_tokens_that_are_allowed() {
        let logits = [0.0, 2.0, f32::NAN, 2.0, 1.0];
        let mut chooser = Chooser::new(Sampling::default());
        assert_eq!(chosen(&mut chooser, &logits, &[], None).id, 1);
        assert_eq!(chosen(&mut chooser, &logits, &[1], None).id, 3);
        assert_eq!(chosen(&mut chooser, &logits, &[], Some(4)).id, 4);
        let even = [1.0f32; 4];
        let written = chosen(&mut chooser, &even, &[], None);
        assert_eq!((written.id, written.likeliest.len()), (0, 4));
        assert!((written.probability - 0.25).abs() < 1e-12);
    }

    #[test]
    fn tokens_are_drawn_with_their_probabilities() {
        // Probabilities 0.5, 0.25, 0.25 at temperature 1; 2/3, 1/6, 1/6 at 0.5.
        let logits = [2f32.ln(), 0.0, 0.0];
        let n = 20_000;
        for (temperature, expected) in [(1.0, 0.5), (0.5, 2.0 / 3.0)] {
            let sampling = Sampling {
                temperature,
                seed: 7,
                ..Sampling::default()
            };
            let ids = drawn(sampling, &logits, n);
            let share = ids.iter().filter(|id| **id == 0).count() as f64 / n as f64;
            // Four standard deviations of the share.
            let room = 4.0 * (expected * (1.0 - expected) / n as f64).sqrt();
            assert!((share - expected).abs() < room, "{share} {expected}");
            assert_eq!(ids, drawn(sampling, &logits, n), "one seed, one text");
            let other = Sampling {
                seed: 8,
                ..sampling
            };
            assert_ne!(ids, drawn(other, &logits, n));
        }
    }

    #[test]
    fn top_k_and_top_p_restrict_the_tokens_that_are_drawn() {
        let logits = [3.0, 2.9, 0.0, 2.8];
        let all = Sampling {
            temperature: 5.0,
            ..Sampling::default()
        };
        let of = |sampling| {
            let mut ids = drawn(sampling, &logits, 500);
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        assert_eq!(of(all), [0, 1, 2, 3]);
        assert_eq!(
            of(Sampling {
                top_k: Some(2),
                ..all
            }),
            [0, 1]
        );
        assert_eq!(
            of(Sampling {
                top_p: Some(0.5),
                ..all
            }),
            [0, 1]
        );
        assert_eq!(
            of(Sampling {
                top_p: Some(1e-9),
                ..all
            }),
            [0]
        );
    }
}
