//! A pattern that somebody else computed, held against what it is declared to be, cell by cell.

use super::mask::Visibility;
use super::spec::{SoftmaxAxis, Window};

/// Probability where there should be none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forbidden {
    /// Summed over the cells of one kind.
    pub mass: f64,
    /// The worst cell.
    pub largest: f32,
    pub query_idx: usize,
    pub key_idx: usize,
}

impl Forbidden {
    fn add(&mut self, query_idx: usize, key_idx: usize, p: f32) {
        self.mass += f64::from(p);
        if p > self.largest || p.is_nan() {
            (self.largest, self.query_idx, self.key_idx) = (p, query_idx, key_idx);
        }
    }
}

/// A cell that is not what the scores say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    pub difference: f32,
    pub query_idx: usize,
    pub key_idx: usize,
}

/// What a whole pattern showed. Padded queries count nowhere; each forbidden cell counts once, under what is most specific.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Audit {
    /// On keys after the query.
    pub after: Forbidden,
    /// On keys outside the declared window.
    pub outside_window: Forbidden,
    /// On padded keys.
    pub on_pads: Forbidden,
    /// On keys of another packed document.
    pub across_documents: Forbidden,
    /// The farthest |query − key| with any probability.
    pub reach: usize,
    /// A query that spreads its mass evenly, over forbidden keys too.
    pub uniform_row: Option<usize>,
    /// The cell that differs most from the softmax of its scores along the declared axis.
    pub mismatch: Option<Mismatch>,
    /// The rows are a softmax whose cells were zeroed at random and the rest divided by 1 − p: that p.
    pub dropout: Option<f64>,
    /// The softmax gave part of every row to one learned logit: its value, where all rows agree.
    pub learned_sink: Option<f64>,
    /// Whether keys of another document could be told.
    pub has_documents: bool,
    /// Whether there were scores to compare with.
    pub has_scores: bool,
    /// Largest |Σ over queries − 1| of a real key, padded queries counted: a softmax over queries takes them all.
    pub query_axis_deviation: Option<f64>,
    /// Largest |Σ over heads − 1| of a cell; set on the first head of a layer.
    pub head_axis_deviation: Option<f64>,
}

/// Rows of a square this small are even by nature.
const SMALLEST_UNIFORM: usize = 3;

impl Audit {
    /// Looks at a whole pattern. `documents` says which packed document each position belongs to; empty where there is one.
    /// // pattern and scores: [query, key]
    pub fn of(
        visibility: &Visibility,
        axis: SoftmaxAxis,
        documents: &[usize],
        pattern: &[f32],
        scores: Option<&[f32]>,
    ) -> Self {
        let mut audit = Self {
            has_documents: !documents.is_empty(),
            has_scores: scores.is_some(),
            ..Self::default()
        };
        let n_keys = visibility.n_keys;
        audit.query_axis_deviation = query_axis_deviation(visibility, pattern);
        for query_idx in 0..visibility.n_queries {
            if !visibility.is_real_query(query_idx) {
                continue;
            }
            let row = &pattern[query_idx * n_keys..(query_idx + 1) * n_keys];
            audit.row(visibility, documents, query_idx, row);
        }
        if let Some(scores) = scores {
            audit.compare(visibility, axis, documents, pattern, scores);
        }
        audit
    }

    fn row(&mut self, visibility: &Visibility, documents: &[usize], query_idx: usize, row: &[f32]) {
        let window = visibility.range_of_window(query_idx);
        let mut n_forbidden = 0;
        for (key_idx, p) in row.iter().enumerate() {
            if *p != 0.0 {
                self.reach = self.reach.max(query_idx.abs_diff(key_idx));
            }
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            if visibility.sees(query_idx, key_idx) && !is_foreign {
                continue;
            }
            n_forbidden += 1;
            if *p == 0.0 {
                continue;
            }
            let kind = if !visibility.is_real_key(key_idx) {
                &mut self.on_pads
            } else if is_foreign {
                &mut self.across_documents
            } else if visibility.is_after(query_idx, key_idx) || window.contains(&key_idx) {
                &mut self.after
            } else {
                &mut self.outside_window
            };
            kind.add(query_idx, key_idx, *p);
        }
        let first = row.first().copied().unwrap_or(0.0);
        let is_even = first > 0.0 && row.iter().all(|p| (p - first).abs() <= 1e-3 * first);
        if is_even && n_forbidden > 0 && row.len() >= SMALLEST_UNIFORM {
            self.uniform_row.get_or_insert(query_idx);
        }
    }

    /// Holds the pattern against the softmax of its scores: over the visible keys, since scores may have been captured before
    /// their mask; or over all, where forbidden ones took part.
    fn compare(
        &mut self,
        visibility: &Visibility,
        axis: SoftmaxAxis,
        documents: &[usize],
        pattern: &[f32],
        scores: &[f32],
    ) {
        let is_masked = self.forbidden_mass() == 0.0;
        let counts = |query_idx: usize, key_idx: usize| {
            let is_foreign = documents.get(query_idx) != documents.get(key_idx);
            !is_masked || (visibility.sees(query_idx, key_idx) && !is_foreign)
        };
        let compared = Comparison::of(visibility, axis, pattern, scores, &counts);
        self.mismatch = compared.worst;
        self.dropout = compared.dropout();
        self.learned_sink = compared.learned_sink();
    }
}

fn query_axis_deviation(visibility: &Visibility, pattern: &[f32]) -> Option<f64> {
    let mut sums = vec![0.0f64; visibility.n_keys];
    for row in pattern.chunks(visibility.n_keys.max(1)) {
        sums.iter_mut()
            .zip(row)
            .for_each(|(sum, p)| *sum += f64::from(*p));
    }
    let sums = sums.iter().enumerate();
    let real = sums.filter(|(key_idx, _)| visibility.is_real_key(*key_idx));
    real.map(|(_, sum)| (sum - 1.0).abs()).reduce(f64::max)
}

/// A pattern beside the softmax of its scores.
#[derive(Default)]
struct Comparison {
    worst: Option<Mismatch>,
    /// Cells that should hold something, and those of them that hold exactly nothing.
    n_cells: usize,
    n_zeroed: usize,
    /// Least and largest of found divided by expected, of the other cells.
    ratios: Option<(f64, f64)>,
    /// Of each row log Σ exp of its scores, and what is found of what is expected.
    rows: Vec<(f64, f64)>,
    /// Some row does not hold the same share of what is expected in all of its cells.
    is_uneven: bool,
}

/// Cells that should hold less than this say nothing about the others.
const TELLING: f64 = 1e-6;
/// Cells that hold this much have enough digits in any kind of float for their row's share to be told.
const LARGE: f64 = 1e-3;
const SAME_SHARE: f64 = 1e-2;

impl Comparison {
    fn of(
        visibility: &Visibility,
        axis: SoftmaxAxis,
        pattern: &[f32],
        scores: &[f32],
        counts: &dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let n_keys = visibility.n_keys;
        let log_sums = log_sums(visibility, axis, scores, counts);
        let mut all = Self::default();
        for query_idx in (0..visibility.n_queries).filter(|i| visibility.is_real_query(*i)) {
            let (mut row_ratio, mut span) = (None, (f64::INFINITY, f64::NEG_INFINITY));
            for key_idx in (0..n_keys).filter(|key_idx| counts(query_idx, *key_idx)) {
                let at = query_idx * n_keys + key_idx;
                let log_sum = log_sums[match axis {
                    SoftmaxAxis::Keys => query_idx,
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
                    // The largest cell says it with the most digits.
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
    fn dropout(&self) -> Option<f64> {
        let (least, most) = self.ratios?;
        let is_even = most > 1.0 && (most - least) / most < 1e-3;
        if self.n_zeroed == 0 || !is_even {
            return None;
        }
        let p = 1.0 - 1.0 / most;
        // As many cells as that p would drop, within what chance allows.
        let expected = p * self.n_cells as f64;
        let off = (self.n_zeroed as f64 - expected).abs();
        (off <= 4.0 * (expected * (1.0 - p)).sqrt() + 2.0).then_some(p)
    }

    /// The value of one learned logit that takes what every row lacks: a row whose own scores are large lacks next to nothing.
    fn learned_sink(&self) -> Option<f64> {
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
    counts: &dyn Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let n_keys = visibility.n_keys;
    let n = match axis {
        SoftmaxAxis::Keys => visibility.n_queries,
        SoftmaxAxis::Queries => n_keys,
    };
    let (mut max, mut sum) = (vec![f64::NEG_INFINITY; n], vec![0.0f64; n]);
    for query_idx in (0..visibility.n_queries).filter(|i| visibility.is_real_query(*i)) {
        for key_idx in (0..n_keys).filter(|key_idx| counts(query_idx, *key_idx)) {
            let at = if axis == SoftmaxAxis::Keys {
                query_idx
            } else {
                key_idx
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

impl Audit {
    /// Everything that lies where nothing should.
    pub fn forbidden_mass(&self) -> f64 {
        let kinds = [
            self.after,
            self.outside_window,
            self.on_pads,
            self.across_documents,
        ];
        kinds.iter().map(|kind| kind.mass).sum()
    }
}

impl Visibility {
    /// The keys that the window alone would let a query see.
    fn range_of_window(&self, query_idx: usize) -> std::ops::Range<usize> {
        match self.mask().window {
            None => 0..self.n_keys,
            Some(Window::Back(width)) => (query_idx + 1).saturating_sub(width)..self.n_keys,
            Some(Window::Around(reach)) => {
                query_idx.saturating_sub(reach)..(query_idx + 1).saturating_add(reach)
            }
        }
    }

    /// Whether the declared mask hides a key because it comes later.
    fn is_after(&self, query_idx: usize, key_idx: usize) -> bool {
        self.mask().causal && key_idx > query_idx
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Mask;

    const CAUSAL: Mask = Mask {
        causal: true,
        window: None,
    };

    fn of(
        mask: Mask,
        n: usize,
        real: Option<&[bool]>,
        pattern: &[f32],
        scores: Option<&[f32]>,
    ) -> Audit {
        let visibility = Visibility::of_self(mask, n, real);
        Audit::of(&visibility, SoftmaxAxis::Keys, &[], pattern, scores)
    }

    #[test]
    fn each_forbidden_cell_counts_once_under_what_is_most_specific() {
        let window = Mask {
            causal: true,
            window: Some(Window::Back(2)),
        };
        // Key 0 is padding; query 3 sees keys 2 and 3.
        let real = [false, true, true, true];
        #[rustfmt::skip]
        let pattern = [
            0.0, 0.0, 0.0, 0.0,
            0.0, 0.9, 0.1, 0.0,
            0.2, 0.4, 0.4, 0.0,
            0.1, 0.3, 0.3, 0.3,
        ];
        let audit = of(window, 4, Some(&real), &pattern, None);
        let seen = |kind: Forbidden| (kind.largest, kind.query_idx, kind.key_idx);
        assert_eq!(seen(audit.after), (0.1, 1, 2));
        assert_eq!(seen(audit.outside_window), (0.3, 3, 1));
        assert_eq!(seen(audit.on_pads), (0.2, 2, 0));
        assert!((audit.on_pads.mass - 0.3).abs() < 1e-6);
        assert_eq!(audit.reach, 3);
    }

    #[test]
    fn an_even_row_over_forbidden_keys_is_told_from_an_honest_one() {
        let even = [1.0 / 3.0; 9];
        assert_eq!(of(CAUSAL, 3, None, &even, None).uniform_row, Some(0));
        // The last row of a causal head may well be even.
        let honest = [
            1.0,
            0.0,
            0.0,
            0.5,
            0.5,
            0.0,
            1.0 / 3.0,
            1.0 / 3.0,
            1.0 / 3.0,
        ];
        assert_eq!(of(CAUSAL, 3, None, &honest, None).uniform_row, None);
    }

    #[test]
    fn a_learned_sink_and_dropout_are_recognised_by_their_scores() {
        let n = 24usize;
        let score = |i: usize, j: usize| ((i * 7 + j * 13) % 5) as f32 * 0.4;
        let matrix = |cell: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..n * n)
                .map(|at| {
                    if at % n > at / n {
                        0.0
                    } else {
                        cell(at / n, at % n)
                    }
                })
                .collect()
        };
        let scores = matrix(&score);
        let sum = |i: usize| (0..=i).map(|j| score(i, j).exp()).sum::<f32>();
        let sunk = matrix(&|i, j| score(i, j).exp() / (sum(i) + 2f32.exp()));
        let audit = of(CAUSAL, n, None, &sunk, Some(&scores));
        assert!(
            (audit.learned_sink.expect("a sink") - 2.0).abs() < 1e-3,
            "{audit:?}"
        );
        assert_eq!(audit.dropout, None);
        let dropped = matrix(&|i, j| {
            let kept = (i * 31 + j * 17) % 10 != 0;
            if kept {
                score(i, j).exp() / sum(i) / 0.9
            } else {
                0.0
            }
        });
        let audit = of(CAUSAL, n, None, &dropped, Some(&scores));
        assert!(
            (audit.dropout.expect("dropout") - 0.1).abs() < 1e-3,
            "{audit:?}"
        );
        assert_eq!(audit.learned_sink, None);
        let plain = matrix(&|i, j| score(i, j).exp() / sum(i));
        let audit = of(CAUSAL, n, None, &plain, Some(&scores));
        assert_eq!((audit.dropout, audit.learned_sink), (None, None));
        assert!(audit.mismatch.expect("compared").difference < 1e-6);
    }

    #[test]
    fn a_sink_that_a_row_hardly_feels_is_still_one_and_a_lost_cell_is_none() {
        let n = 12usize;
        // Later rows have larger scores: the last one gives its sink 1e-6.
        let score = |i: usize, j: usize| ((i * 5 + j * 3) % 4) as f32 * 0.2 + i as f32;
        let cell = |i: usize, j: usize| {
            let sum = (0..=i).map(|j| f64::from(score(i, j)).exp()).sum::<f64>();
            (f64::from(score(i, j)).exp() / (sum + 0.5f64.exp())) as f32
        };
        let matrix = |of: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            let at = |at: usize| {
                if at % n > at / n {
                    0.0
                } else {
                    of(at / n, at % n)
                }
            };
            (0..n * n).map(at).collect()
        };
        let scores = matrix(&score);
        let mut sunk = matrix(&cell);
        let audit = of(CAUSAL, n, None, &sunk, Some(&scores));
        assert!((audit.learned_sink.expect("a sink") - 0.5).abs() < 1e-2);
        sunk[5 * n + 2] *= 0.5;
        assert_eq!(of(CAUSAL, n, None, &sunk, Some(&scores)).learned_sink, None);
    }
}
