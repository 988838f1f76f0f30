//! The next token: what a model predicts, and which of it is taken.

use std::borrow::Cow;

use attnscope_prompt::Sampling;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Tokens that are told beside the one that was taken.
const N_TOLD: usize = 10;

/// One token that a model wrote, and what it might have written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub id: u32,
    /// Probability that the model gave it, whatever the temperature.
    pub probability: f64,
    /// Nothing was chosen: the model writes this token here whatever it predicts.
    pub is_forced: bool,
    /// The likeliest tokens, the first first.
    pub likeliest: Vec<(u32, f64)>,
}

/// What a token is chosen by, beside how it is drawn.
pub struct Choice<'a> {
    /// // [token]
    pub scores: Cow<'a, [f32]>,
    /// Tokens that are not written.
    pub never: Vec<u32>,
    /// What is written in any case.
    pub forced: Option<u32>,
}

/// Draws tokens, each from random numbers of its own.
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

    /// Chooses a token; `logits` are what the model gave, and what is told of probabilities.
    pub fn choose(&mut self, logits: &[f32], choice: &Choice<'_>) -> Written {
        let (scores, forced) = (choice.scores.as_ref(), choice.forced);
        let is_open = |id: &usize| !choice.never.contains(&(*id as u32));
        // Ids by falling score, equals by rising id: a NaN counts as the least.
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

    /// Draws one of some ids, the likeliest first; `None` where logits are not numbers to draw with.
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
        // 53 bits: every multiple of 2⁻⁵³ below 1 alike.
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
    fn the_likeliest_is_taken_of_equals_the_first_and_what_is_never_written_is_not() {
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
    fn tokens_are_drawn_as_often_as_their_probability_says() {
        // Probabilities 0.5, 0.25, 0.25 at temperature 1; 2/3, 1/6, 1/6 at a half.
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
            // Four standard deviations of a share.
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
    fn fewer_tokens_are_drawn_from_where_that_is_asked() {
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
