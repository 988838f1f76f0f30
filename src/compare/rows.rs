//! Scores and patterns of one attention: A's are kept, a few heads at a time, until B's are compared with them.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use attnscope_compute::attention::{
    AttentionSpec, BlockSink, GlobalKeys, HeadInput, HeadSummary, RelativeTables, Run, SoftmaxAxis,
    Visibility, stream_heads,
};
use attnscope_compute::kernels::simd;
use attnscope_compute::kernels::simd::Level;
use attnscope_compute::pace::Pace;

use super::gap::{Axes, HeadGap, HookGap};
use super::largest::Largest;

/// Bytes of a score and of a probability.
pub(super) const CELL_BYTES: usize = 2 * size_of::<f32>();

/// Kept scores and pattern of one head of A. // [query, key] each
#[derive(Debug, Default)]
struct Kept {
    scores: Vec<f32>,
    pattern: Vec<f32>,
    /// Number of scores received from A.
    n_given: usize,
}

/// Comparison of some rows of one head.
#[derive(Debug, Clone, Default)]
struct Block {
    first_query: usize,
    scores: HeadGap,
    pattern: HeadGap,
    /// Jensen–Shannon divergence summed over rows, in nats, and the number of rows.
    divergence: f64,
    n_rows: usize,
    /// Largest differences of scores and of pattern; empty unless [`Keeping::has_largest`].
    largest: [Largest; 2],
}

/// Heads of one attention, some of which are kept at a time.
#[derive(Debug, Default)]
pub(super) struct Rows {
    n_heads: usize,
    n_queries: usize,
    n_keys: usize,
    /// Heads kept now.
    heads: Range<usize>,
    kept: Vec<Mutex<Kept>>,
    /// [head]
    blocks: Vec<Mutex<Vec<Block>>>,
    /// Which queries are real tokens; empty if all are.
    real: Vec<bool>,
    /// Whether no query of A sees a later key; cells after the query are then not kept.
    is_causal: bool,
    /// Whether the largest difference is asked for, besides the sums.
    has_largest: bool,
    /// Attention to recompute A's heads from, if they could not be kept.
    recompute: Option<Arc<RecomputeInputs>>,
}

/// Comparison of all rows of an attention.
#[derive(Debug, Clone)]
pub(super) struct RowGaps {
    pub scores: HookGap,
    pub pattern: HookGap,
    /// Mean Jensen–Shannon divergence of each head's rows, in nats. // [head]
    pub divergence: Vec<f64>,
    /// Largest differences of scores and of pattern; only with [`Keeping::has_largest`].
    pub largest: Option<[Largest; 2]>,
}

/// What is kept of an attention, and what is measured. By default nothing is kept and only sums are measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Keeping {
    /// Limit of kept scores and patterns, in bytes.
    pub bytes: usize,
    /// Whether no query of A sees a later key.
    pub is_causal: bool,
    pub has_largest: bool,
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rows {
    /// Starts an attention of the given numbers of heads, queries and keys, and keeps as many heads as fit in `bytes`.
    pub fn begin(
        &mut self,
        (n_heads, n_queries, n_keys): (usize, usize, usize),
        real: Option<&[bool]>,
        keeping: Keeping,
    ) {
        *self = Self {
            n_heads,
            n_queries,
            n_keys,
            heads: 0..0,
            kept: std::mem::take(&mut self.kept),
            blocks: (0..n_heads).map(|_| Mutex::default()).collect(),
            real: real.map(<[bool]>::to_vec).unwrap_or_default(),
            is_causal: keeping.is_causal && n_queries == n_keys,
            has_largest: keeping.has_largest,
            recompute: None,
        };
        let n_kept = (keeping.bytes / self.head_bytes()).min(n_heads);
        self.keep(0..n_kept);
    }

    /// Returns the index of a query's first kept cell in its head.
    fn place(&self, query_idx: usize) -> usize {
        if self.is_causal {
            query_idx * (query_idx + 1) / 2
        } else {
            query_idx * self.n_keys
        }
    }

    /// Returns the kept cells of a query.
    fn kept_cells(&self, query_idx: usize) -> Range<usize> {
        self.place(query_idx)..self.place(query_idx + 1)
    }

    fn head_bytes(&self) -> usize {
        (self.place(self.n_queries) * CELL_BYTES).max(1)
    }

    /// Sets the attention to recompute A's heads from when they are needed.
    pub fn recompute_from(&mut self, recompute: RecomputeInputs) {
        self.recompute = Some(Arc::new(recompute));
    }

    /// Keeps other heads from now on, reusing the memory.
    pub fn keep(&mut self, heads: Range<usize>) {
        let n = self.place(self.n_queries);
        self.kept.truncate(heads.len());
        self.kept.resize_with(heads.len(), Mutex::default);
        for kept in &mut self.kept {
            let kept = kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            kept.scores.resize(n, f32::NAN);
            kept.pattern.resize(n, f32::NAN);
            kept.n_given = 0;
        }
        self.heads = heads;
    }

    /// Returns the heads not kept yet.
    pub fn left(&self) -> Range<usize> {
        self.heads.end..self.n_heads
    }

    /// Returns the number of heads that fit in `bytes`, at least one.
    pub fn at_once(&self, bytes: usize) -> usize {
        (bytes / self.head_bytes()).max(1)
    }

    /// Frees all memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the result over all heads; `None` if the attention has none.
    pub fn finish(&mut self) -> Option<RowGaps> {
        if self.n_heads == 0 {
            return None;
        }
        let empty = || HookGap {
            axes: Axes::Cells,
            has_heads: true,
            heads: Vec::with_capacity(self.n_heads),
        };
        let (mut scores, mut pattern) = (empty(), empty());
        let mut divergence = Vec::with_capacity(self.n_heads);
        let mut largest = [Largest::default(); 2];
        for blocks in &mut self.blocks {
            let blocks = blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
            // Blocks arrive in any order, and sums must not depend on it.
            blocks.sort_by_key(|block| block.first_query);
            let mut all = Block::default();
            for block in blocks.iter() {
                all.scores.join(&block.scores);
                all.pattern.join(&block.pattern);
                all.divergence += block.divergence;
                all.n_rows += block.n_rows;
                for (all, of_block) in largest.iter_mut().zip(&block.largest) {
                    all.join(of_block);
                }
            }
            scores.heads.push(all.scores);
            pattern.heads.push(all.pattern);
            divergence.push(all.divergence / all.n_rows.max(1) as f64);
        }
        Some(RowGaps {
            scores,
            pattern,
            divergence,
            largest: self.has_largest.then_some(largest),
        })
    }

    /// Returns the number of scores of real queries.
    pub fn n_cells(&self) -> usize {
        let real = (0..self.n_queries).filter(|query_idx| self.is_real(*query_idx));
        self.n_heads * real.count() * self.n_keys
    }

    fn is_real(&self, query_idx: usize) -> bool {
        self.real.get(query_idx).copied().unwrap_or(true)
    }

    /// Compares some rows of a head. // [row, key] each
    pub fn compare(
        &self,
        head_idx: usize,
        first_query: usize,
        (scores_a, pattern_a): (&[f32], &[f32]),
        (scores_b, pattern_b): (&[f32], &[f32]),
    ) {
        let Some(blocks) = self.blocks.get(head_idx) else {
            return;
        };
        let n = self.n_keys.max(1);
        let mut block = Block {
            first_query,
            ..Block::default()
        };
        let scores = scores_a.chunks(n).zip(scores_b.chunks(n));
        let patterns = pattern_a.chunks(n).zip(pattern_b.chunks(n));
        for (nth, ((scores_a, scores_b), (a, b))) in scores.zip(patterns).enumerate() {
            let query_idx = first_query + nth;
            if !self.is_real(query_idx) {
                continue;
            }
            block.scores.row(query_idx, scores_a, scores_b, true);
            let before = block.pattern.squares;
            block.pattern.row(query_idx, a, b, false);
            block.n_rows += 1;
            if self.has_largest {
                let first = (head_idx * self.n_queries + query_idx) * self.n_keys;
                let [of_scores, of_pattern] = &mut block.largest;
                of_scores.add(first, scores_a, scores_b);
                of_pattern.add(first, a, b);
            }
            if block.pattern.squares > before {
                block.divergence += divergence(a, b);
            }
        }
        held(blocks).push(block);
    }
}

/// Returns the Jensen–Shannon divergence of two rows, in nats; values that are not probabilities are ignored.
pub(super) fn divergence(a: &[f32], b: &[f32]) -> f64 {
    simd::divergence(Level::current(), a, b)
}

/// Rows that the device's threads fill or read.
pub(super) type Shared = RwLock<Rows>;

/// Locks the rows for reading; ignores a poisoned lock.
pub(super) fn read_rows(rows: &Shared) -> RwLockReadGuard<'_, Rows> {
    rows.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the rows for writing; ignores a poisoned lock.
pub(super) fn write_rows(rows: &Shared) -> RwLockWriteGuard<'_, Rows> {
    rows.write().unwrap_or_else(PoisonError::into_inner)
}

/// Sink that keeps A's scores and patterns.
pub(super) struct Keep<'a>(pub &'a Shared);

impl BlockSink for Keep<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let rows = read_rows(self.0);
        let nth = head_idx.checked_sub(rows.heads.start);
        let Some(kept) = nth.and_then(|nth| rows.kept.get(nth)) else {
            return;
        };
        let mut kept = held(kept);
        let n = rows.n_keys.max(1);
        let given = scores.chunks(n).zip(pattern.chunks(n)).enumerate();
        for (nth, (scores, pattern)) in given {
            let at = rows.kept_cells(first_query + nth);
            if at.end <= kept.scores.len() && at.len() <= scores.len() {
                kept.n_given += at.len();
                kept.scores[at.clone()].copy_from_slice(&scores[..at.len()]);
                kept.pattern[at.clone()].copy_from_slice(&pattern[..at.len()]);
            }
        }
    }
}

/// Sink that compares B's scores and patterns with A's.
pub(super) struct Compare<'a>(pub &'a Shared);

impl BlockSink for Compare<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let rows = read_rows(self.0);
        let nth = head_idx.checked_sub(rows.heads.start);
        let Some(kept) = nth.and_then(|nth| rows.kept.get(nth)) else {
            return;
        };
        let mut kept = held(kept);
        if kept.n_given < kept.scores.len() {
            // Unless A gave every value of the head, none is used: the buffers may hold values of an earlier layer, and NaN
            // differs from every number.
            kept.scores.fill(f32::NAN);
            kept.pattern.fill(f32::NAN);
            kept.n_given = kept.scores.len();
        }
        let n_rows = scores.len() / rows.n_keys.max(1);
        let range = rows.place(first_query)..rows.place(first_query + n_rows);
        if range.end > kept.scores.len() {
            return;
        }
        if !rows.is_causal {
            let of_a = (&kept.scores[range.clone()], &kept.pattern[range]);
            rows.compare(head_idx, first_query, of_a, (scores, pattern));
            return;
        }
        WHOLE.with_borrow_mut(|(of_scores, of_pattern)| {
            // Keys after the query are masked.
            of_scores.clear();
            of_scores.resize(scores.len(), f32::NEG_INFINITY);
            of_pattern.clear();
            of_pattern.resize(pattern.len(), 0.0);
            for nth in 0..n_rows {
                let (from, to) = (rows.kept_cells(first_query + nth), nth * rows.n_keys);
                let to = to..to + from.len();
                of_scores[to.clone()].copy_from_slice(&kept.scores[from.clone()]);
                of_pattern[to].copy_from_slice(&kept.pattern[from]);
            }
            let of_a = (of_scores.as_slice(), of_pattern.as_slice());
            rows.compare(head_idx, first_query, of_a, (scores, pattern));
        });
    }

    fn n_heads_at_once(&self) -> Option<usize> {
        read_rows(self.0)
            .recompute
            .as_ref()
            .map(|recompute| recompute.n_at_once)
    }

    fn ready(&self, heads: Range<usize>, pace: &dyn Pace) -> bool {
        let recompute = {
            let rows = read_rows(self.0);
            let is_kept = rows.heads.start <= heads.start && heads.end <= rows.heads.end;
            rows.recompute.clone().filter(|_| !is_kept)
        };
        let Some(recompute) = recompute else {
            return true;
        };
        write_rows(self.0).keep(heads.clone());
        recompute.attend(heads, &Keep(self.0), pace).is_some()
    }
}

thread_local! {
    /// Scores and pattern of a block of A, including masked cells.
    static WHOLE: RefCell<(Vec<f32>, Vec<f32>)> = RefCell::default();
}

/// An attention that can be recomputed, some heads at a time.
#[derive(Debug)]
pub(super) struct RecomputeInputs {
    pub spec: AttentionSpec,
    pub visibility: Visibility,
    pub positions: Vec<usize>,
    pub grid: Option<[usize; 2]>,
    /// [head]
    pub sinks: Option<Vec<f32>>,
    /// log Σ exp(score) of what each row's softmax sees besides these keys. // [query, head]
    pub beside: Option<Vec<f32>>,
    /// [bucket, head]
    pub buckets: Option<Vec<f32>>,
    /// Factors of the learned bias. // [query, head]
    pub bias_factors: Option<Vec<f32>>,
    pub relative: Option<RelativeTables>,
    /// Keys and values of global tokens.
    pub globals: Option<GlobalKeys>,
    /// Rotated queries, rotated keys and values. // [position, heads · width] each
    pub values: [Vec<f32>; 3],
    /// Number of heads computed before they are compared.
    pub n_at_once: usize,
}

impl RecomputeInputs {
    /// Computes some heads; `None` if stopped.
    pub fn attend(&self, heads: Range<usize>, sink: &dyn BlockSink, pace: &dyn Pace) -> Option<()> {
        self.run(heads, Some(sink), pace).map(|_| ())
    }

    /// log Σ exp(score) of every row; `None` if stopped, or if the softmax does not run over keys. // [query, head]
    pub fn log_sums(&self, pace: &dyn Pace) -> Option<Vec<f32>> {
        if self.spec.softmax_axis != SoftmaxAxis::Keys {
            return None;
        }
        let heads = self.run(0..self.spec.n_heads, None, pace)?;
        let of_query = |query_idx: usize| heads.iter().map(move |head| &head.rows[query_idx]);
        let rows = (0..self.visibility.n_queries).flat_map(of_query);
        Some(rows.map(|row| row.log_sum_exp).collect())
    }

    fn run(
        &self,
        heads: Range<usize>,
        sink: Option<&dyn BlockSink>,
        pace: &dyn Pace,
    ) -> Option<Vec<HeadSummary>> {
        let [q, k, v] = &self.values;
        let run = Run {
            spec: &self.spec,
            visibility: &self.visibility,
            heads,
            sinks: self.sinks.as_deref(),
            beside: self.beside.as_deref(),
            bucket_values: self.buckets.as_deref(),
            bias_factors: self.bias_factors.as_deref(),
            relative: self.relative.as_ref(),
            positions: &self.positions,
            grid: self.grid,
            repeats: None,
            value_norms: None,
            globals: self.globals.as_ref(),
            sink,
            kept: None,
            pace,
        };
        let n_outputs = self.spec.n_heads * self.spec.d_value;
        let mut z = vec![0.0; self.visibility.n_queries * n_outputs];
        stream_heads(&run, HeadInput { q, k, v }, Level::current(), &mut z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends heads of two queries and two keys, one block per head.
    fn give(sink: &dyn BlockSink, heads: Range<usize>, changed: Option<usize>) {
        for head_idx in heads {
            let mut values = [head_idx as f32; 4];
            if changed == Some(head_idx) {
                values[3] += 0.5;
            }
            sink.block(head_idx, 0, &values, &values);
        }
    }

    #[test]
    fn keeping_heads_one_by_one_gives_the_same_result_as_all_at_once() {
        for bytes in [0, 4 * CELL_BYTES, 1 << 20] {
            let shared = Shared::default();
            let keeping = Keeping {
                bytes,
                is_causal: false,
                has_largest: true,
            };
            write_rows(&shared).begin((3, 2, 2), None, keeping);
            give(&Keep(&shared), 0..3, None);
            give(&Compare(&shared), 0..3, Some(2));
            loop {
                let left = read_rows(&shared).left();
                if left.is_empty() {
                    break;
                }
                write_rows(&shared).keep(left.start..left.start + 1);
                give(&Keep(&shared), 0..3, None);
                give(&Compare(&shared), 0..3, Some(2));
            }
            let found = write_rows(&shared).finish().expect("heads");
            for gap in [&found.scores, &found.pattern] {
                assert_eq!(gap.worst_head(), Some(2));
                assert_eq!((gap.heads[2].worst, gap.heads[2].at), (0.5, (1, 1)));
                assert_eq!(gap.total().n_values, 12);
            }
            for largest in found.largest.expect("asked for") {
                assert_eq!((largest.difference, largest.element), (0.5, 11));
                assert_eq!((largest.n_values, largest.magnitude), (12, 2.0));
            }
        }
    }

    #[test]
    fn the_divergence_of_disjoint_rows_is_ln_2() {
        let apart = divergence(&[1.0, 0.0], &[0.0, 1.0]);
        assert!((apart - 2f64.ln()).abs() < 1e-6);
        assert_eq!(divergence(&[0.3, 0.7], &[0.3, 0.7]), 0.0);
        // The series and the logarithms agree where one takes over from the other.
        let of = |p: f64, q: f64| {
            let mean = 0.5 * (p + q);
            0.5 * (p * (p / mean).ln() + q * (q / mean).ln())
        };
        for (p, q) in [(0.5f32, 0.41f32), (0.5, 0.409), (0.5, 0.40), (0.2, 0.21)] {
            let rest = [1.0 - p, 1.0 - q];
            let expected = of(p.into(), q.into()) + of(rest[0].into(), rest[1].into());
            let found = divergence(&[p, rest[0]], &[q, rest[1]]);
            assert!(
                (found - expected).abs() < 1e-6 * expected.max(1e-3),
                "{p} {q}"
            );
        }
    }
}
