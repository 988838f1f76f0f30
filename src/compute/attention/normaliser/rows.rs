//! Rows of a head, prepared for comparison with what its scores should give.

use std::ops::Range;

use crate::attention::Visibility;

/// Fewest hidden cells that show how a mask hides.
const FEWEST_HIDDEN: usize = 3;

/// One comparable row, restricted to the cells that count.
#[derive(Debug, Clone, Default)]
pub struct HeadRow {
    pub query_idx: usize,
    /// Key indices, in order.
    pub keys: Vec<usize>,
    /// Empty if there are no scores.
    pub scores: Vec<f64>,
    pub found: Vec<f64>,
    /// log Σ exp of all scores of the row, hidden keys included; NaN if some are −inf.
    pub log_sum_of_all: f64,
}

impl HeadRow {
    pub fn sum(&self) -> f64 {
        self.found.iter().sum()
    }

    /// log Σ exp of the scores that count.
    pub fn log_sum(&self) -> f64 {
        log_sum(&self.scores)
    }
}

pub fn log_sum(scores: &[f64]) -> f64 {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + scores.iter().map(|s| (s - max).exp()).sum::<f64>().ln()
}

/// The comparable rows of a head: of real queries, without NaN, with at least one key.
#[derive(Debug)]
pub struct Head<'a> {
    pub rows: Vec<HeadRow>,
    pub has_scores: bool,
    pub n_keys: usize,
    /// Every key counts in every row.
    pub is_full: bool,
    pub vectors: Option<Vectors<'a>>,
    /// Whether a sink is declared, or recorded key columns were cut off.
    pub has_sinks: bool,
    /// Whether zeros may be the head's own, rather than those of a mask shared by all heads.
    pub has_own_zeros: bool,
    /// Whether hidden cells have scores of 0, as a mask that multiplies leaves them.
    pub hides_by_product: bool,
}

/// Queries and keys of a head. // [position, d_head]
#[derive(Debug, Clone, Copy)]
pub struct Vectors<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub d_head: usize,
}

impl<'a> Head<'a> {
    /// `counts` selects the cells to compare. // pattern and scores: [query, key]
    pub fn of(
        visibility: &Visibility,
        pattern: &[f32],
        scores: Option<&[f32]>,
        vectors: Option<Vectors<'a>>,
        counts: &dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let n_keys = visibility.n_keys;
        let mut head = Self {
            rows: Vec::new(),
            has_scores: scores.is_some(),
            n_keys,
            is_full: true,
            vectors,
            has_sinks: false,
            has_own_zeros: true,
            hides_by_product: false,
        };
        let (mut n_hidden, mut n_zero) = (0, 0);
        let real = (0..visibility.n_queries).filter(|idx| visibility.is_real_query(*idx));
        for query_idx in real {
            let span: Range<usize> = query_idx * n_keys..(query_idx + 1) * n_keys;
            let found = &pattern[span.clone()];
            let scores = scores.map(|scores| &scores[span]);
            if found.iter().any(|p| !p.is_finite()) {
                continue;
            }
            let is_wrong = |score: &f32| score.is_nan() || *score == f32::INFINITY;
            if scores.is_some_and(|scores| scores.iter().any(is_wrong)) {
                continue;
            }
            let is_scored =
                |key_idx: &usize| scores.is_none_or(|scores| scores[*key_idx] > f32::NEG_INFINITY);
            let keys: Vec<usize> = (0..n_keys)
                .filter(|key_idx| counts(query_idx, *key_idx) && is_scored(key_idx))
                .collect();
            if let Some(scores) = scores {
                let hidden = (0..n_keys).filter(|key_idx| keys.binary_search(key_idx).is_err());
                for key_idx in hidden {
                    n_hidden += 1;
                    n_zero += usize::from(scores[key_idx] == 0.0);
                }
            }
            if keys.is_empty() {
                continue;
            }
            head.is_full &= keys.len() == n_keys;
            let wide = |values: &[f32]| keys.iter().map(|idx| f64::from(values[*idx])).collect();
            let all: Vec<f64> = scores
                .iter()
                .flat_map(|s| s.iter().map(|s| f64::from(*s)))
                .collect();
            let is_bare = !all.is_empty() && all.iter().all(|s| s.is_finite());
            head.rows.push(HeadRow {
                query_idx,
                scores: scores.map_or(Vec::new(), wide),
                found: wide(found),
                log_sum_of_all: if is_bare { log_sum(&all) } else { f64::NAN },
                keys,
            });
        }
        head.hides_by_product = n_hidden >= FEWEST_HIDDEN && n_zero == n_hidden;
        head
    }

    pub fn n_cells(&self) -> usize {
        self.rows.iter().map(|row| row.keys.len()).sum()
    }

    /// Largest |found − expected| over the largest expected cell of its row. A row expected to be zero contributes its largest
    /// value.
    pub fn off(&self, expected: &dyn Fn(&HeadRow) -> Vec<f64>) -> f64 {
        let mut worst = 0.0f64;
        for row in &self.rows {
            let expected = expected(row);
            let largest = expected.iter().fold(0.0f64, |most, e| most.max(e.abs()));
            let unit = if largest > 0.0 { largest } else { 1.0 };
            for (found, expected) in row.found.iter().zip(&expected) {
                let off = (found - expected).abs() / unit;
                if off > worst || off.is_nan() {
                    worst = off;
                }
            }
            if worst.is_nan() {
                return f64::INFINITY;
            }
        }
        worst
    }
}

/// The median; NaN if empty.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
