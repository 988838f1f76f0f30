//! Scores and patterns of some heads of one attention, kept from one engine until the other's are compared.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use attnscope_compute::attention::BlockSink;

use super::largest::Largest;

/// Bytes of a score and of a probability.
pub(super) const CELL_BYTES: usize = 2 * size_of::<f32>();

/// Heads compared in one round, and the result of all rounds.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub n_heads: usize,
    pub n_queries: usize,
    pub n_keys: usize,
    /// Maximum number of heads per round.
    n_at_once: usize,
    /// Heads of this round.
    heads: Range<usize>,
    /// [head of the round, query, key]
    scores: Vec<f32>,
    pattern: Vec<f32>,
    pub of_scores: Largest,
    pub of_pattern: Largest,
}

impl Rows {
    /// Starts an attention of the given numbers of heads, queries and keys; a round keeps at most `bytes`, but at least one
    /// head.
    ///
    /// Reuses the previous attention's memory, so two layers' rows are never held at once.
    pub fn begin(&mut self, (n_heads, n_queries, n_keys): (usize, usize, usize), bytes: usize) {
        let of_head = (n_queries * n_keys * CELL_BYTES).max(1);
        *self = Self {
            n_heads,
            n_queries,
            n_keys,
            n_at_once: (bytes / of_head).clamp(1, n_heads.max(1)),
            scores: std::mem::take(&mut self.scores),
            pattern: std::mem::take(&mut self.pattern),
            ..Self::default()
        };
        self.advance();
    }

    /// Frees all memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Advances to the next heads; returns false when all have been compared.
    pub fn advance(&mut self) -> bool {
        let start = self.heads.end;
        self.heads = start..(start + self.n_at_once).min(self.n_heads);
        // Values that the reference does not provide stay NaN, which differs from every number.
        let n = self.heads.len() * self.n_queries * self.n_keys;
        for values in [&mut self.scores, &mut self.pattern] {
            values.clear();
            values.resize(n, f32::NAN);
        }
        !self.heads.is_empty()
    }

    /// Whether heads are left for another round.
    pub fn is_more(&self) -> bool {
        self.heads.end < self.n_heads
    }

    /// Returns the index of a block among all heads, and among those of the round.
    fn place(&self, head_idx: usize, first_query: usize) -> Option<(usize, usize)> {
        let nth = head_idx.checked_sub(self.heads.start)?;
        let of_head = self.n_queries * self.n_keys;
        let within = first_query * self.n_keys;
        let is_here = head_idx < self.heads.end;
        is_here.then_some((head_idx * of_head + within, nth * of_head + within))
    }
}

/// Rows that the engines' threads fill or read.
pub(super) type Shared = Mutex<Rows>;

/// Locks the rows; ignores a poisoned lock.
pub(super) fn held(rows: &Shared) -> MutexGuard<'_, Rows> {
    rows.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sink that keeps the reference's scores and patterns.
pub(super) struct Keep<'a>(pub &'a Shared);

impl BlockSink for Keep<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut rows = held(self.0);
        if let Some((_, at)) = rows.place(head_idx, first_query) {
            rows.scores[at..at + scores.len()].copy_from_slice(scores);
            rows.pattern[at..at + pattern.len()].copy_from_slice(pattern);
        }
    }
}

/// Sink that compares the other engine's scores and patterns.
pub(super) struct Compare<'a>(pub &'a Shared);

impl BlockSink for Compare<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut rows = held(self.0);
        if let Some((first, at)) = rows.place(head_idx, first_query) {
            let rows = &mut *rows;
            let kept = &rows.scores[at..at + scores.len()];
            rows.of_scores.add(first, kept, scores);
            let kept = &rows.pattern[at..at + pattern.len()];
            rows.of_pattern.add(first, kept, pattern);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends three heads of two queries and two keys, one block per head.
    fn give(sink: &dyn BlockSink, changed: Option<usize>) {
        for head_idx in 0..3 {
            let mut values = [head_idx as f32; 4];
            if changed == Some(head_idx) {
                values[3] += 0.5;
            }
            sink.block(head_idx, 0, &values, &values);
        }
    }

    #[test]
    fn rounds_of_one_head_give_the_same_result_as_one_round_of_all() {
        for (bytes, n_rounds) in [(0, 3), (2 * 4 * CELL_BYTES, 2), (1 << 20, 1)] {
            let shared = Shared::default();
            held(&shared).begin((3, 2, 2), bytes);
            let mut n = 0;
            loop {
                n += 1;
                give(&Keep(&shared), None);
                give(&Compare(&shared), Some(1));
                if !held(&shared).is_more() {
                    break;
                }
                held(&shared).advance();
            }
            assert_eq!(n, n_rounds);
            let rows = held(&shared);
            for found in [rows.of_scores, rows.of_pattern] {
                assert_eq!((found.difference, found.element), (0.5, 7));
                assert_eq!((found.n_values, found.magnitude), (12, 2.0));
            }
        }
    }

    #[test]
    fn rows_missing_from_the_reference_count_as_different() {
        let shared = Shared::default();
        held(&shared).begin((1, 1, 1), 0);
        Compare(&shared).block(0, 0, &[1.0], &[1.0]);
        assert_eq!(held(&shared).of_scores.difference, f64::INFINITY);
    }
}
