//! Explanations that need no other run of the model: what was done to its numbers after it gave them.

use std::f64::consts::{LN_2, LN_10};

use super::reference::Reference;
use super::side::{At, Pair};

/// A way in which a side's numbers may come from the model's: its name, and what the side would then hold at every token; `None` where that
/// cannot be known.
pub(super) struct Transformed {
    pub name: String,
    pub advice: String,
    pub values: Vec<Option<f64>>,
}

fn new(
    name: impl Into<String>,
    advice: impl Into<String>,
    values: Vec<Option<f64>>,
) -> Transformed {
    Transformed {
        name: name.into(),
        advice: advice.into(),
        values,
    }
}

/// All of them.
pub(super) fn transformed(pairs: &[Pair], reference: &Reference) -> Vec<Transformed> {
    let of_value =
        |change: fn(f64) -> f64| pairs.iter().map(|pair| Some(change(pair.model))).collect();
    let mut all = vec![
        new(
            "its values are losses, −ln p",
            "negate them",
            of_value(|value| -value),
        ),
        new(
            "its values are probabilities",
            "take their logarithm",
            of_value(f64::exp),
        ),
        new(
            "its values are logarithms to base 2",
            "multiply them by ln 2",
            of_value(|value| value / LN_2),
        ),
        new(
            "its values are logarithms to base 10",
            "multiply them by ln 10",
            of_value(|value| value / LN_10),
        ),
    ];
    for (by, name, advice) in [
        (
            1,
            "each value belongs to the token after it",
            "move its values one token on: the first token has none",
        ),
        (
            -1,
            "each value belongs to the token before it",
            "move its values one token back",
        ),
    ] {
        all.push(new(name, advice, shifted(pairs, reference, by)));
    }
    all.extend(truncated(pairs, reference));
    all
}

/// What the model says of the token `by` places later.
fn shifted(pairs: &[Pair], reference: &Reference, by: isize) -> Vec<Option<f64>> {
    let value = |pair: &Pair| {
        let idx = pair.at.idx.checked_add_signed(by)?;
        reference.said[pair.at.prompt_idx].get(idx)?.logprob
    };
    pairs.iter().map(value).collect()
}

/// Share of the tokens at which the kept part of a distribution has to be known.
const KNOWN: f64 = 0.5;

/// Distributions cut to their likeliest tokens and divided by what is left, as sampling with top-k and top-p does.
fn truncated(pairs: &[Pair], reference: &Reference) -> Vec<Transformed> {
    let mut all = Vec::new();
    // Every token tells a size of its own: how many of the likeliest tokens weigh as much as the side's value says.
    let mut told: Vec<usize> = pairs
        .iter()
        .filter_map(|pair| n_kept(pair, reference))
        .collect();
    let n_finite = pairs.iter().filter(|pair| pair.side.is_finite()).count();
    if (told.len() as f64) < KNOWN * n_finite as f64 || told.is_empty() {
        return all;
    }
    told.sort_unstable();
    let most = told[told.len() / 2];
    // How many tokens are kept where these are the sums; `None` if that is not known.
    let with = |n_kept: &dyn Fn(&[f64]) -> Option<usize>| -> Vec<Option<f64>> {
        let value = |pair: &Pair| {
            let n = n_kept(&sums(pair.at, reference))?;
            let rank = reference.said[pair.at.prompt_idx][pair.at.idx].rank?;
            if rank as usize > n {
                return Some(f64::NEG_INFINITY);
            }
            let kept = sums(pair.at, reference).get(n.checked_sub(1)?).copied()?;
            Some(pair.model - kept.ln())
        };
        pairs.iter().map(value).collect()
    };
    let of_k = with(&|_| Some(most));
    all.push(new(
        format!("only its {most} likeliest tokens are kept (top-k)"),
        "ask for log-probabilities before sampling changes them",
        of_k,
    ));
    let mut shares: Vec<f64> = pairs
        .iter()
        .filter_map(|pair| {
            let n = n_kept(pair, reference)?;
            let sums = sums(pair.at, reference);
            // The least p lies between the sum of one token less and the sum itself.
            Some(if n > 1 { sums[n - 2] } else { 0.0 })
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    // p is above all of these.
    let least = shares.last().copied().unwrap_or(0.0);
    let p = [
        0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999,
    ];
    if let Some(p) = p.into_iter().find(|p| *p >= least) {
        let of_p = with(&|sums| Some(sums.iter().position(|sum| *sum >= p)? + 1));
        all.push(new(
            format!("only the likeliest tokens up to p = {p} are kept (top-p)"),
            "ask for log-probabilities before sampling changes them",
            of_p,
        ));
    }
    all
}

/// Sums of the probabilities of the likeliest tokens: of one, of two …
fn sums(at: At, reference: &Reference) -> Vec<f64> {
    let mut sum = 0.0;
    let top = reference.said[at.prompt_idx][at.idx].top.iter();
    let add = |(_, log): &(u32, f64)| {
        sum += log.exp();
        sum
    };
    top.map(add).collect()
}

/// How many of the likeliest tokens weigh what a side's value says is left; `None` if no number does.
fn n_kept(pair: &Pair, reference: &Reference) -> Option<usize> {
    let left = (pair.model - pair.side).exp();
    if !(left > 0.0 && left <= 1.0 + 1e-6) {
        return None;
    }
    let sums = sums(pair.at, reference);
    let near = (0..sums.len())
        .min_by(|a, b| (sums[*a] - left).abs().total_cmp(&(sums[*b] - left).abs()))?;
    ((sums[near] - left).abs() < 2e-3).then_some(near + 1)
}
