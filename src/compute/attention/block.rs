//! One head in row blocks, some queries × all their keys at a time: the definition that the fast path is judged by.

use std::ops::Range;

use super::globals::GlobalKeys;
use super::head_bias::{HeadBias, RelativeTables};
use super::kv_head::KeptKeys;
use super::log_sums::LogSumsOverQueries;
use super::mask::Visibility;
use super::repeats::Repeats;
use super::row::{HeadMath, finish_row};
use super::spec::{AttentionSpec, SoftmaxAxis};
use super::summary::HeadSummary;
use super::tally::Tally;
use crate::kernels::{Matrix, MatrixMut, Threads, are_finite, product, sum_of_squares};
use crate::pace::Pace;

/// Queries of one block: enough rows for an efficient product, few enough that a block stays in the cache.
const BLOCK_ROWS: usize = 64;

/// Receives finished blocks: for a trace, or for the head on screen.
pub trait BlockSink: Sync {
    /// Rows `first_query..` of one head; scores are −inf and the pattern 0 where masked. // [row, key]
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]);

    /// How many heads run before the sink is made ready for others; `None` for all of them.
    fn n_heads_at_once(&self) -> Option<usize> {
        None
    }

    /// Makes ready for some heads, before any block of them comes; false where that was stopped.
    fn ready(&self, _heads: Range<usize>, _pace: &dyn Pace) -> bool {
        true
    }
}

/// One attention to run: the same for every head.
pub struct Run<'a> {
    pub spec: &'a AttentionSpec,
    pub visibility: &'a Visibility,
    /// Which heads; others leave zeros in the output.
    pub heads: Range<usize>,
    /// Learned sink logits. // [head]
    pub sinks: Option<&'a [f32]>,
    /// Learned values of a bias by buckets. // [bucket, head]
    pub bucket_values: Option<&'a [f32]>,
    /// Learned vectors of distances.
    pub relative: Option<&'a RelativeTables>,
    /// Positions of the tokens, where a bias counts them; indices where it is empty. // [position]
    pub positions: &'a [usize],
    /// Which tokens stand twice, where queries and keys are the same tokens.
    pub repeats: Option<&'a Repeats>,
    /// ‖v W_O‖ of every head, where it is known. // [head][key]
    pub value_norms: Option<&'a [Vec<f32>]>,
    /// Keys and values of what global tokens see, where the visibility has such.
    pub globals: Option<&'a GlobalKeys>,
    pub sink: Option<&'a dyn BlockSink>,
    /// What was packed for the queries before, and is kept for those that follow.
    pub kept: Option<&'a KeptKeys>,
    /// Asked between blocks: true stops the work.
    pub pace: &'a dyn Pace,
}

impl<'a> Run<'a> {
    /// ‖v W_O‖ of a head's keys, where it is known.
    pub fn value_norms_of(&self, head_idx: usize) -> Option<&'a [f32]> {
        Some(self.value_norms?.get(head_idx)?.as_slice())
    }
}

/// Queries, keys and values of all heads, as the projections leave them.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Of the queries that run: the first row is that of [`Visibility::first_query`]. // [query, n_heads · d_head]
    pub q: &'a [f32],
    /// [key, n_kv_heads · d_head]
    pub k: &'a [f32],
    /// [key, n_kv_heads · d_value]
    pub v: &'a [f32],
}

/// What one head gives.
#[derive(Debug)]
pub struct HeadRun {
    /// Σ p·v. // [query, d_value]
    pub z: Vec<f32>,
    pub summary: HeadSummary,
}

/// Runs one head; `None` when it was stopped.
pub fn run_head(run: &Run<'_>, input: HeadInput<'_>, head_idx: usize) -> Option<HeadRun> {
    let spec = run.spec;
    let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
    let first_query = run.visibility.first_query();
    let head_of = |input| Head::new(spec, input, head_idx).with_first_query(first_query);
    let norms_of = |head: &Head<'_>| -> Vec<f32> {
        let norm = |key_idx| sum_of_squares(head.key(key_idx)).sqrt() as f32;
        (0..n_keys).map(norm).collect()
    };
    let head = head_of(input);
    let k_norms = norms_of(&head);
    let global = run.globals.map(|globals| head_of(globals.input(input.q)));
    let global_norms = global.as_ref().map(norms_of).unwrap_or_default();
    let mut scores = vec![0.0; BLOCK_ROWS.min(n_queries) * n_keys];
    let mut pattern = vec![0.0; scores.len()];

    let learned = HeadBias::of(run, input, head_idx);
    let own = HeadMath {
        spec,
        head_idx,
        positions: run.positions,
        learned: &learned,
        visibility: run.visibility,
        sink: run.sinks.map(|sinks| sinks[head_idx]),
        k_norms: &k_norms,
        value_norms: run.value_norms_of(head_idx),
        column_log_sum_exp: None,
    };
    let mut sides = Sides {
        global: global.map(|head| {
            let norms = run.globals.and_then(|of| of.value_norms_of(head_idx));
            let math = HeadMath {
                k_norms: &global_norms,
                value_norms: norms,
                ..own
            };
            (head, math)
        }),
        own: (head, own),
    };
    let columns = match spec.softmax_axis {
        SoftmaxAxis::Keys => None,
        SoftmaxAxis::Queries => {
            let columns = column_log_sum_exp(run, &sides, &mut scores, &mut pattern);
            Some(columns?)
        }
    };
    sides.own.1.column_log_sum_exp = columns.as_deref();
    if let Some((_, math)) = &mut sides.global {
        math.column_log_sum_exp = columns.as_deref();
    }

    let mut z = vec![0.0; (n_queries - first_query) * spec.d_value];
    let mut tally = Tally::new(run.visibility, run.repeats);
    for block in run.visibility.blocks(first_query..n_queries, BLOCK_ROWS) {
        if run.pace.stops() {
            return None;
        }
        let (head, math) = sides.of(&block);
        let n_rows = block.len();
        let scores = &mut scores[..n_rows * n_keys];
        let pattern = &mut pattern[..n_rows * n_keys];
        head.products(&block, n_keys, scores); // [row, key]
        for (row_idx, query_idx) in block.clone().enumerate() {
            let row = row_idx * n_keys..(row_idx + 1) * n_keys;
            let q_norm = sum_of_squares(head.query(query_idx)).sqrt() as f32;
            let pattern_row = &mut pattern[row.clone()];
            let summary = finish_row(math, query_idx, q_norm, &mut scores[row], pattern_row);
            tally.add(summary, pattern_row);
        }
        if let Some(sink) = run.sink {
            sink.block(head_idx, block.start, scores, pattern);
        }
        let block = block.start - first_query..block.end - first_query;
        let z_rows = &mut z[block.start * spec.d_value..block.end * spec.d_value];
        head.values(pattern, n_keys, z_rows); // [row, d_value]
    }
    let mut summary = tally.finish(k_norms, run.visibility);
    summary.value_norms = run.value_norms_of(head_idx).unwrap_or_default().to_vec();
    Some(HeadRun { z, summary })
}

/// A head of most tokens, and of those that see all others.
struct Sides<'a> {
    own: (Head<'a>, HeadMath<'a>),
    global: Option<(Head<'a>, HeadMath<'a>)>,
}

impl<'a> Sides<'a> {
    /// The head of a block's queries.
    fn of(&self, block: &Range<usize>) -> &(Head<'a>, HeadMath<'a>) {
        let visibility = self.own.1.visibility;
        let global = self.global.as_ref();
        let global = global.filter(|_| visibility.is_global(block.start));
        global.unwrap_or(&self.own)
    }
}

/// log Σ over queries of exp(s), per key: the first of two passes of a softmax over queries.
fn column_log_sum_exp(
    run: &Run<'_>,
    sides: &Sides<'_>,
    scores: &mut [f32],
    pattern: &mut [f32],
) -> Option<Vec<f32>> {
    let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
    let mut sums = LogSumsOverQueries::new(n_keys);
    let over_keys = AttentionSpec {
        softmax_axis: SoftmaxAxis::Keys,
        ..run.spec.clone()
    };
    for block in run.visibility.blocks(0..n_queries, BLOCK_ROWS) {
        if run.pace.stops() {
            return None;
        }
        let (head, math) = sides.of(&block);
        let math = HeadMath {
            spec: &over_keys,
            ..*math
        };
        let scores = &mut scores[..block.len() * n_keys];
        head.products(&block, n_keys, scores);
        for (row_idx, query_idx) in block.clone().enumerate() {
            let row = &mut scores[row_idx * n_keys..(row_idx + 1) * n_keys];
            finish_row(&math, query_idx, 1.0, row, &mut pattern[..n_keys]);
            sums.add(row);
        }
    }
    Some(sums.finish())
}

/// Where one head's numbers lie among all heads'.
pub(super) struct Head<'a> {
    pub(super) head_idx: usize,
    input: HeadInput<'a>,
    /// The query that the first row of the input belongs to.
    first_query: usize,
    d_head: usize,
    d_value: usize,
    q_stride: usize,
    k_stride: usize,
    v_stride: usize,
    q_at: usize,
    k_at: usize,
    v_at: usize,
}

impl<'a> Head<'a> {
    pub(super) fn new(spec: &AttentionSpec, input: HeadInput<'a>, head_idx: usize) -> Self {
        Self::with_kv_head(spec, input, head_idx, spec.kv_head_of(head_idx))
    }

    /// A head and the kv head that serves it.
    pub(super) fn with_kv_head(
        spec: &AttentionSpec,
        input: HeadInput<'a>,
        head_idx: usize,
        kv_head_idx: usize,
    ) -> Self {
        Self {
            head_idx,
            input,
            first_query: 0,
            d_head: spec.d_head,
            d_value: spec.d_value,
            q_stride: spec.n_heads * spec.d_head,
            k_stride: spec.n_kv_heads * spec.d_head,
            v_stride: spec.n_kv_heads * spec.d_value,
            q_at: head_idx * spec.d_head,
            k_at: kv_head_idx * spec.d_head,
            v_at: kv_head_idx * spec.d_value,
        }
    }

    /// The head where its queries begin at one.
    pub(super) fn with_first_query(self, first_query: usize) -> Self {
        Self {
            first_query,
            ..self
        }
    }

    pub(super) fn query(&self, query_idx: usize) -> &'a [f32] {
        &self.queries_from(query_idx).0[..self.d_head]
    }

    pub(super) fn key(&self, key_idx: usize) -> &'a [f32] {
        &self.input.k[key_idx * self.k_stride + self.k_at..][..self.d_head]
    }

    /// Queries from one on, and how far apart they are.
    pub(super) fn queries_from(&self, query_idx: usize) -> (&'a [f32], usize) {
        let at = (query_idx - self.first_query) * self.q_stride + self.q_at;
        (&self.input.q[at..], self.q_stride)
    }

    /// All keys, and how far apart they are.
    pub(super) fn keys_from(&self) -> (&'a [f32], usize) {
        (&self.input.k[self.k_at..], self.k_stride)
    }

    /// All values, and how far apart they are.
    pub(super) fn values_from(&self) -> (&'a [f32], usize) {
        (&self.input.v[self.v_at..], self.v_stride)
    }

    pub(super) fn has_finite_values(&self, mut keys: Range<usize>) -> bool {
        let value = |key_idx: usize| &self.input.v[key_idx * self.v_stride + self.v_at..];
        keys.all(|key_idx| are_finite(&value(key_idx)[..self.d_value]))
    }

    /// q·k of a block of queries with all keys. // [row, key]
    pub(super) fn products(&self, block: &Range<usize>, n_keys: usize, out: &mut [f32]) {
        let (q, _) = self.queries_from(block.start);
        let q = Matrix::new(q, block.len(), self.d_head, self.q_stride, 1);
        let k = Matrix::new(
            &self.input.k[self.k_at..],
            n_keys,
            self.d_head,
            self.k_stride,
            1,
        );
        let mut out = MatrixMut::new(out, block.len(), n_keys, n_keys);
        product(&mut out, q, k.transposed(), false, Threads::One);
    }

    /// Σ p·v of a block. // [row, d_value]
    pub(super) fn values(&self, pattern: &[f32], n_keys: usize, out: &mut [f32]) {
        let n_rows = pattern.len() / n_keys.max(1);
        let v = Matrix::new(
            &self.input.v[self.v_at..],
            n_keys,
            self.d_value,
            self.v_stride,
            1,
        );
        let mut out = MatrixMut::new(out, n_rows, self.d_value, self.d_value);
        product(
            &mut out,
            Matrix::row_major(pattern, n_rows, n_keys),
            v,
            false,
            Threads::One,
        );
    }
}
