//! Two tables against each other.

use super::floor::Floor;
use super::scored::{LogProbs, ScoredToken};
use super::side::TokenGap;

/// What two tables make of the same tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Between {
    pub n_tokens: usize,
    /// Mean and largest |ln p of B − ln p of A|, in nats.
    pub mean_abs: f64,
    pub max_abs: f64,
    /// Where the largest is: prompt and token.
    pub worst: Option<(String, usize)>,
    /// Divergence of B from A.
    pub kl: Divergence,
    /// p of B / p of A of single tokens: the least, the mean and the largest, as importance sampling uses them.
    pub ratios: [f64; 3],
    /// Whether they differ by more than the floor, for want of a model that could tell who departs.
    pub parts: bool,
    /// Every token that both scored: B is the side, and A the other. Prompts are those of A.
    pub tokens: Vec<TokenGap>,
}

/// A Kullback–Leibler divergence in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    pub nats: f64,
    /// Whether it comes from the likeliest tokens of both, all others lumped together (a lower bound); otherwise from the tokens of the text
    /// alone, by the estimator e^d − 1 − d of Schulman 2020.
    pub is_of_top: bool,
}

/// Differences count up to this, so that one −∞ does not hide all others.
pub(super) const MOST_NATS: f64 = 30.0;

/// b − a, limited; 0 where both are the same infinity.
pub(super) fn gap(a: f64, b: f64) -> f64 {
    if a == b {
        return 0.0;
    }
    (b - a).clamp(-MOST_NATS, MOST_NATS)
}

/// KL(p ‖ q) over tokens that both name, all others lumped together; `None` if one side names none.
fn of_top(p: &[(u32, f64)], q: &[(u32, f64)]) -> Option<f64> {
    let (mut sum, mut rest_p, mut rest_q, mut n) = (0.0, 1.0, 1.0, 0);
    for (id, log_p) in p {
        let Some((_, log_q)) = q.iter().find(|(other, _)| other == id) else {
            continue;
        };
        n += 1;
        let (of_p, of_q) = (log_p.exp(), log_q.exp());
        (rest_p, rest_q) = (rest_p - of_p, rest_q - of_q);
        if of_p > 0.0 {
            sum += of_p * gap(*log_q, *log_p);
        }
    }
    // Less than this is what written digits leave.
    if rest_p > 1e-6 {
        let least = rest_q.max(1e-9);
        sum += rest_p * gap(least.ln(), rest_p.ln());
    }
    (n > 0).then_some(sum.max(0.0))
}

/// The divergence of one program's predictions from another's, as (of the program, of the other) for every token.
pub(super) fn divergence<'a>(
    tokens: impl Iterator<Item = (&'a ScoredToken, f64, &'a [(u32, f64)])> + Clone,
) -> Divergence {
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let tops: Vec<f64> = tokens
        .clone()
        .filter_map(|(token, _, top)| of_top(&token.top, top))
        .collect();
    let n = tokens.clone().count();
    if n > 0 && 2 * tops.len() >= n {
        return Divergence {
            nats: mean(tops),
            is_of_top: true,
        };
    }
    let of_tokens = tokens.filter_map(|(token, other, _)| {
        let d = gap(token.logprob?, other);
        Some(d.exp() - 1.0 - d)
    });
    Divergence {
        nats: mean(of_tokens.collect()),
        is_of_top: false,
    }
}

/// Compares the tokens of paired prompts that both scored, and that are the same where ids are known.
pub(super) fn between(
    a: &LogProbs,
    b: &LogProbs,
    pairs: &[(usize, usize)],
    floor: &Floor,
) -> Option<Between> {
    let mut all: Vec<(usize, &str, usize, &ScoredToken, &ScoredToken)> = Vec::new();
    for (prompt_idx, of_b) in pairs {
        let (of_a, of_b) = (&a.prompts[*prompt_idx], &b.prompts[*of_b]);
        let tokens = of_a.tokens.iter().zip(&of_b.tokens).enumerate();
        // Behind a token that differs nothing is the same.
        let same =
            tokens.take_while(|(_, (a, b))| a.id.is_none() || b.id.is_none() || a.id == b.id);
        all.extend(same.map(|(idx, (a, b))| (*prompt_idx, of_a.name.as_str(), idx, a, b)));
    }
    all.retain(|(.., a, b)| a.logprob.is_some() && b.logprob.is_some());
    let gaps: Vec<f64> = all
        .iter()
        .filter_map(|(.., a, b)| Some(gap(a.logprob?, b.logprob?)))
        .collect();
    let n = gaps.len();
    if n == 0 {
        return None;
    }
    let mean_abs = gaps.iter().map(|gap| gap.abs()).sum::<f64>() / n as f64;
    let worst = (0..n).max_by(|a, b| gaps[*a].abs().total_cmp(&gaps[*b].abs()))?;
    let ratios = gaps.iter().map(|gap| gap.exp());
    let limit = floor.limit() + a.quantum + b.quantum;
    Some(Between {
        n_tokens: n,
        mean_abs,
        max_abs: gaps[worst].abs(),
        worst: Some((all[worst].1.to_owned(), all[worst].2)),
        kl: divergence(
            all.iter()
                .filter_map(|(.., a, b)| Some((*b, a.logprob?, a.top.as_slice()))),
        ),
        ratios: [
            ratios.clone().fold(f64::INFINITY, f64::min),
            ratios.clone().sum::<f64>() / n as f64,
            ratios.fold(0.0, f64::max),
        ],
        parts: mean_abs.is_nan() || mean_abs > limit,
        tokens: all
            .iter()
            .filter_map(|(prompt_idx, _, position, a, b)| {
                Some(TokenGap {
                    prompt_idx: *prompt_idx,
                    position: *position,
                    side: b.logprob?,
                    other: a.logprob?,
                    is_beyond: false,
                })
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lumping_the_rest_bounds_the_divergence_from_below() {
        let p = [0.5f64, 0.3, 0.1, 0.1];
        let q = [0.25f64, 0.25, 0.3, 0.2];
        let exact: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        let top = |all: &[f64], n: usize| -> Vec<(u32, f64)> {
            all[..n]
                .iter()
                .enumerate()
                .map(|(id, p)| (id as u32, p.ln()))
                .collect()
        };
        let whole = of_top(&top(&p, 4), &top(&q, 4)).expect("a value");
        assert!((whole - exact).abs() < 1e-9);
        let part = of_top(&top(&p, 2), &top(&q, 3)).expect("a value");
        assert!(part <= exact + 1e-12 && part > 0.1);
        assert_eq!(of_top(&top(&p, 2), &[]), None);
    }

    #[test]
    fn infinite_log_probabilities_are_limited() {
        assert_eq!(gap(f64::NEG_INFINITY, f64::NEG_INFINITY), 0.0);
        assert_eq!(gap(-1.0, f64::NEG_INFINITY), -MOST_NATS);
        assert!(gap(f64::NAN, 0.0).is_nan());
    }
}
