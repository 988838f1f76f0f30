//! One head in row blocks (some queries × all their keys): the reference implementation for the fast path.

use std::ops::Range;

use super::head::{Head, HeadInput};
use super::head_bias::HeadBias;
use super::log_sums::LogSumsOverQueries;
use super::row::{HeadMath, finish_row};
use super::run::Run;
use super::spec::{AttentionSpec, SoftmaxAxis};
use super::summary::HeadSummary;
use super::tally::Tally;
use crate::kernels::sum_of_squares;

/// Queries of one block: enough rows for an efficient product, few enough that a block stays in the cache.
const BLOCK_ROWS: usize = 64;

/// Result of one head.
#[derive(Debug)]
pub struct HeadRun {
    /// Σ p·v. // [query, d_value]
    pub z: Vec<f32>,
    pub summary: HeadSummary,
}

/// Runs one head; `None` if it was stopped.
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

/// A head as used by ordinary tokens, and as used by global tokens.
struct Sides<'a> {
    own: (Head<'a>, HeadMath<'a>),
    global: Option<(Head<'a>, HeadMath<'a>)>,
}

impl<'a> Sides<'a> {
    /// The head that a block's queries use.
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
