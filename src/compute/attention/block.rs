//! One head in row blocks (some queries × all their keys): the reference implementation for the fast path.

use std::ops::Range;

use super::head::{Head, HeadInput};
use super::head_bias::HeadBias;
use super::log_sums::{LogSumExp, LogSums};
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
    let keys = KeysOfHead::new(run, input, head_idx);
    let mut sides = keys.sides(run, input);
    let log_sums = match spec.softmax_axis {
        SoftmaxAxis::Keys => Vec::new(),
        SoftmaxAxis::Queries => sum_over_queries(run, &sides)?,
        SoftmaxAxis::Heads => sum_over_heads(run, input)?,
    };
    sides.relative_to(match spec.softmax_axis {
        SoftmaxAxis::Keys => None,
        SoftmaxAxis::Queries => Some(LogSums::OverQueries(&log_sums)),
        SoftmaxAxis::Heads => Some(LogSums::OverHeads {
            values: &log_sums,
            width: n_keys,
            first_query,
        }),
    });

    let mut scores = vec![0.0; BLOCK_ROWS.min(n_queries) * n_keys];
    let mut pattern = vec![0.0; scores.len()];
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
    let mut summary = tally.finish(keys.norms, run.visibility);
    summary.value_norms = run.value_norms_of(head_idx).unwrap_or_default().to_vec();
    Some(HeadRun { z, summary })
}

/// What a head's rows need beside their queries.
struct KeysOfHead {
    head_idx: usize,
    /// ‖k‖. // [key]
    norms: Vec<f32>,
    /// ‖k‖ as global tokens see the keys. // [key]
    global_norms: Vec<f32>,
    learned: HeadBias,
}

impl KeysOfHead {
    fn new(run: &Run<'_>, input: HeadInput<'_>, head_idx: usize) -> Self {
        let norms = |input: HeadInput<'_>| -> Vec<f32> {
            let head = Head::new(run.spec, input, head_idx);
            let norm = |key_idx| sum_of_squares(head.key(key_idx)).sqrt() as f32;
            (0..run.visibility.n_keys).map(norm).collect()
        };
        let global_norms = run.globals.map(|globals| norms(globals.input(input.q)));
        Self {
            head_idx,
            norms: norms(input),
            global_norms: global_norms.unwrap_or_default(),
            learned: HeadBias::of(run, input, head_idx),
        }
    }

    fn sides<'a>(&'a self, run: &'a Run<'a>, input: HeadInput<'a>) -> Sides<'a> {
        let first_query = run.visibility.first_query();
        let head_of = |input: HeadInput<'a>| {
            Head::new(run.spec, input, self.head_idx).with_first_query(first_query)
        };
        let own = HeadMath {
            spec: run.spec,
            head_idx: self.head_idx,
            positions: run.positions,
            learned: &self.learned,
            visibility: run.visibility,
            sink: run.sinks.map(|sinks| sinks[self.head_idx]),
            k_norms: &self.norms,
            value_norms: run.value_norms_of(self.head_idx),
            log_sums: None,
        };
        let global = run.globals.map(|globals| {
            let math = HeadMath {
                k_norms: &self.global_norms,
                value_norms: globals.value_norms_of(self.head_idx),
                ..own
            };
            (head_of(globals.input(input.q)), math)
        });
        Sides {
            own: (head_of(input), own),
            global,
        }
    }
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

    fn relative_to(&mut self, log_sums: Option<LogSums<'a>>) {
        self.own.1.log_sums = log_sums;
        if let Some((_, math)) = &mut self.global {
            math.log_sums = log_sums;
        }
    }

    /// Gives each query's scores, −∞ where a key is not visible; `None` if it was stopped. // [key]
    fn each_row(&self, run: &Run<'_>, take: &mut dyn FnMut(usize, &[f32])) -> Option<()> {
        let visibility = run.visibility;
        let n_keys = visibility.n_keys;
        let over_keys = AttentionSpec {
            softmax_axis: SoftmaxAxis::Keys,
            ..run.spec.clone()
        };
        let mut scores = vec![0.0; BLOCK_ROWS.min(visibility.n_queries) * n_keys];
        let mut pattern = vec![0.0; n_keys];
        let queries = visibility.first_query()..visibility.n_queries;
        for block in visibility.blocks(queries, BLOCK_ROWS) {
            if run.pace.stops() {
                return None;
            }
            let (head, math) = self.of(&block);
            let math = HeadMath {
                spec: &over_keys,
                ..*math
            };
            let scores = &mut scores[..block.len() * n_keys];
            head.products(&block, n_keys, scores);
            for (row, query_idx) in scores.chunks_mut(n_keys.max(1)).zip(block) {
                finish_row(&math, query_idx, 1.0, row, &mut pattern);
                take(query_idx, row);
            }
        }
        Some(())
    }
}

/// log Σ over queries of exp(s): the first of two passes of a softmax over queries. // [key]
fn sum_over_queries(run: &Run<'_>, sides: &Sides<'_>) -> Option<Vec<f32>> {
    let mut sums = LogSumExp::new(run.visibility.n_keys);
    sides.each_row(run, &mut |_, scores| sums.add(scores))?;
    Some(sums.finish())
}

/// log Σ over heads of exp(s): the first of two passes of a softmax over heads; `None` if it was stopped. // [query, key]
pub(super) fn sum_over_heads(run: &Run<'_>, input: HeadInput<'_>) -> Option<Vec<f32>> {
    let (n_keys, first) = (run.visibility.n_keys, run.visibility.first_query());
    let mut sums = LogSumExp::new(run.visibility.n_queries_to_run() * n_keys);
    for head_idx in 0..run.spec.n_heads {
        let keys = KeysOfHead::new(run, input, head_idx);
        let add = &mut |query_idx: usize, scores: &[f32]| {
            sums.add_from((query_idx - first) * n_keys, scores);
        };
        keys.sides(run, input).each_row(run, add)?;
    }
    Some(sums.finish())
}
