//! Compares a pattern with the softmax of its scores, cell by cell.

use super::mask::Visibility;
use super::spec::SoftmaxAxis;

/// A cell that differs from the softmax of its scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    pub difference: f32,
    pub query_idx: usize,
    pub key_idx: usize,
}

/// Result of comparing a pattern with the softmax of its scores.
#[derive(Default)]
pub(super) struct Comparison {
    pub worst: Option<Mismatch>,
    /// Cells expected to be nonzero, and how many of them are exactly zero.
    n_cells: usize,
    n_zeroed: usize,
    /// Smallest and largest ratio found / expected over the other cells.
    ratios: Option<(f64, f64)>,
    /// For each row, log Σ exp of its scores and the ratio found / expected.
    rows: Vec<(f64, f64)>,
    /// In some row, the ratio found / expected differs between cells.
    is_uneven: bool,
}

/// Cells expected to be smaller than this are not compared.
const TELLING: f64 = 1e-6;
/// Cells this large have enough digits in any float type to determine their row's ratio.
const LARGE: f64 = 1e-3;
const SAME_SHARE: f64 = 1e-2;

impl Comparison {
    pub fn of(
        visibility: &Visibility,
        axis: SoftmaxAxis,
        pattern: &[f32],
        scores: &[f32],
        counts: &dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let n_keys = visibility.n_keys;
        let rows: Vec<usize> = comparable(visibility, pattern, scores).collect();
        let log_sums = log_sums(visibility, axis, scores, &rows, counts);
        let mut all = Self::default();
        for query_idx in rows {
            let (mut row_ratio, mut span) = (None, (f64::INFINITY, f64::NEG_INFINITY));
            for key_idx in (0..n_keys).filter(|key_idx| counts(query_idx, *key_idx)) {
                let at = query_idx * n_keys + key_idx;
                let log_sum = log_sums[match axis {
                    SoftmaxAxis::Keys | SoftmaxAxis::Heads => query_idx,
                    SoftmaxAxis::Queries => key_idx,
                }];
                let expected = (f64::from(scores[at]) - log_sum).exp();
                let found = f64::from(pattern[at]);
                let difference = (found - expected).abs() as f32;
                let is_worse =
                    |worst: Mismatch| difference > worst.difference || difference.is_nan();
                if all.worst.is_none_or(is_worse) {
                    all.worst = Some(Mismatch {
                        difference,
                        query_idx,
                        key_idx,
                    });
                }
                if expected > TELLING {
                    all.n_cells += 1;
                    if found == 0.0 {
                        all.n_zeroed += 1
                    } else {
                        let ratio = found / expected;
                        let (low, high) = all.ratios.unwrap_or((ratio, ratio));
                        all.ratios = Some((low.min(ratio), high.max(ratio)));
                    }
                }
                if expected > LARGE {
                    span = (span.0.min(found / expected), span.1.max(found / expected));
                }
                if axis == SoftmaxAxis::Keys
                    && expected > row_ratio.map_or(TELLING, |(most, _)| most)
                {
                    // The largest cell gives the ratio with the most digits.
                    row_ratio = Some((expected, found / expected));
                }
            }
            all.is_uneven |= span.1 - span.0 > SAME_SHARE * span.1;
            if let Some((_, ratio)) = row_ratio {
                all.rows.push((log_sums[query_idx], ratio));
            }
        }
        all
    }

    /// The p of a dropout that zeroed cells at random and divided the others by 1 − p.
    pub fn dropout(&self) -> Option<f64> {
        let (least, most) = self.ratios?;
        let is_even = most > 1.0 && (most - least) / most < 1e-3;
        if self.n_zeroed == 0 || !is_even {
            return None;
        }
        let p = 1.0 - 1.0 / most;
        // The number of zeroed cells must match p within sampling error.
        let expected = p * self.n_cells as f64;
        let off = (self.n_zeroed as f64 - expected).abs();
        (off <= 4.0 * (expected * (1.0 - p)).sqrt() + 2.0).then_some(p)
    }

    /// Value of one learned logit that takes the missing part of every row. Rows with large scores of their own miss next to
    /// nothing.
    pub fn learned_sink(&self) -> Option<f64> {
        // Found / expected is 1 / (1 + e^(sink − log Σ exp)).
        let sinks = self
            .rows
            .iter()
            .filter(|(_, ratio)| *ratio > 0.0 && *ratio < 1.0 - 1e-4)
            .map(|(log_sum, ratio)| log_sum + ((1.0 - ratio) / ratio).ln());
        let (mut n, mut low, mut high) = (0, f64::INFINITY, f64::NEG_INFINITY);
        for sink in sinks {
            (n, low, high) = (n + 1, low.min(sink), high.max(sink));
        }
        if self.is_uneven || n < 2 || high - low > SAME_SHARE * high.abs().max(1.0) {
            return None;
        }
        let sink = 0.5 * (low + high);
        let fits = |(log_sum, ratio): &(f64, f64)| {
            let expected = 1.0 / (1.0 + (sink - log_sum).exp());
            (ratio - expected).abs() <= SAME_SHARE
        };
        self.rows.iter().all(fits).then_some(sink)
    }
}

/// log Σ exp of scores, per query or per key.
fn log_sums(
    visibility: &Visibility,
    axis: SoftmaxAxis,
    scores: &[f32],
    rows: &[usize],
    counts: &dyn Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let n_keys = visibility.n_keys;
    let n = match axis {
        SoftmaxAxis::Keys | SoftmaxAxis::Heads => visibility.n_queries,
        SoftmaxAxis::Queries => n_keys,
    };
    let (mut max, mut sum) = (vec![f64::NEG_INFINITY; n], vec![0.0f64; n]);
    for query_idx in rows.iter().copied() {
        for key_idx in (0..n_keys).filter(|key_idx| counts(query_idx, *key_idx)) {
            let at = if axis == SoftmaxAxis::Queries {
                key_idx
            } else {
                query_idx
            };
            let score = f64::from(scores[query_idx * n_keys + key_idx]);
            if score == f64::NEG_INFINITY {
                continue;
            }
            if score > max[at] {
                sum[at] *= (max[at] - score).exp();
                max[at] = score;
            }
            sum[at] += (score - max[at]).exp();
        }
    }
    max.iter()
        .zip(&sum)
        .map(|(max, sum)| max + sum.ln())
        .collect()
}

/// Real queries with comparable rows: no NaN and no +∞ (the check `nan-or-inf` reports those), and at least one score above −∞.
fn comparable<'a>(
    visibility: &'a Visibility,
    pattern: &'a [f32],
    scores: &'a [f32],
) -> impl Iterator<Item = usize> + 'a {
    let n_keys = visibility.n_keys;
    (0..visibility.n_queries).filter(move |query_idx| {
        let span = query_idx * n_keys..(query_idx + 1) * n_keys;
        let (found, scores) = (&pattern[span.clone()], &scores[span]);
        visibility.is_real_query(*query_idx)
            && found.iter().all(|p| p.is_finite())
            && scores.iter().all(|s| !s.is_nan() && *s < f32::INFINITY)
            && scores.iter().any(|s| *s > f32::NEG_INFINITY)
    })
}

/// Fewest hidden cells whose equal scores show what a mask wrote.
const FEWEST_HIDDEN: usize = 3;

/// The finite score that all hidden cells of real queries share: what a mask wrote there. // scores: [query, key]
pub(super) fn hidden_score(visibility: &Visibility, scores: &[f32]) -> Option<f32> {
    let (mut found, mut n_hidden, mut is_seen_alike) = (None, 0, true);
    let rows = scores.chunks(visibility.n_keys.max(1)).enumerate();
    for (query_idx, row) in rows.filter(|(idx, _)| visibility.is_real_query(*idx)) {
        let seen = visibility.seen_by(query_idx);
        for (_, score) in row.iter().enumerate().filter(|(idx, _)| !seen.has(*idx)) {
            if !score.is_finite() || *found.get_or_insert(*score) != *score {
                return None;
            }
            n_hidden += 1;
        }
    }
    let score = found.filter(|_| n_hidden >= FEWEST_HIDDEN)?;
    // Scores that are alike everywhere were written by no mask.
    for (query_idx, row) in scores.chunks(visibility.n_keys.max(1)).enumerate() {
        let seen = visibility.seen_by(query_idx);
        is_seen_alike &= (0..row.len()).all(|idx| !seen.has(idx) || row[idx] == score);
    }
    (!is_seen_alike).then_some(score)
}
