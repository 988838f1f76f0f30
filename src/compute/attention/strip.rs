//! Runs some queries of one head in row blocks, on the vectorised kernels.
//!
//! A row with a non-finite score is computed by [`finish_row`], which defines what NaN and infinities become.

use std::cell::RefCell;
use std::ops::Range;

use super::fast_row::FastRow;
use super::plan::HeadPlan;
use super::pooled::PooledPart;
use super::row::{fill_unseen, finish_row};
use super::row_bias::RowBias;
use super::scored_row::TopBuffers;
use super::spec::{NoVisible, SoftmaxAxis};
use super::summary::RowSummary;
use crate::kernels::simd::{
    ColumnLogSums, Queries, ScoreSums, add_columns, exp_row, row_by_log_sums, row_norms, scores_of,
    weigh,
};
use crate::kernels::{Aligned, Tile};

/// Some queries of a head to run, and where their results are written.
pub(super) struct Strip<'a> {
    pub queries: Range<usize>,
    /// Σ p·v. // [query, d_value]
    pub z: Tile<'a>,
    /// [query]
    pub rows: &'a mut [RowSummary],
}

/// Further results of some queries of a head.
pub(super) struct StripRun {
    /// Padded to the length of a row of scores.
    pub column_sums: Vec<f32>,
    pub pooled: PooledPart,
    /// [sample, key]
    pub samples: Vec<f32>,
}

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    queries: Queries,
    /// [row, width]
    scores: Aligned,
    factors: Vec<f32>,
    /// End of each row's nonzero weights.
    ends: Vec<usize>,
    q_norms: Vec<f32>,
    maxima: Vec<f32>,
    bias: Vec<f32>,
    /// The scores of a row, kept if value norms are needed.
    row_scores: Vec<f32>,
    /// 1 where a row with holes in its range sees a key.
    seen: Vec<f32>,
    top: TopBuffers,
    /// One row each, for rows that are not finite.
    products: Vec<f32>,
    pattern: Vec<f32>,
    z: Aligned,
    /// The block passed to a sink. // [row, key]
    shown_scores: Vec<f32>,
    shown_pattern: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl HeadPlan<'_> {
    /// Runs some queries; `None` if it was stopped.
    pub(super) fn strip(&self, strip: Strip<'_>) -> Option<StripRun> {
        SCRATCH.with_borrow_mut(|scratch| self.strip_in(strip, scratch))
    }

    fn strip_in(&self, mut to: Strip<'_>, s: &mut Scratch) -> Option<StripRun> {
        let visibility = self.run.visibility;
        let (n_queries, n_keys) = (visibility.n_queries, visibility.n_keys);
        let mut strip = StripRun {
            column_sums: vec![0.0; self.width()],
            pooled: PooledPart::new(n_queries, n_keys, &to.queries),
            samples: Vec::new(),
        };
        for block in self.blocks(to.queries.clone()) {
            if self.run.pace.stops() {
                return None;
            }
            self.of(&block).block(block, &mut to, &mut strip, s);
        }
        Some(strip)
    }

    fn block(
        &self,
        block: Range<usize>,
        to: &mut Strip<'_>,
        strip: &mut StripRun,
        s: &mut Scratch,
    ) {
        let (level, width) = (self.level, self.width());
        let panels = self.products(&block, s);
        let keys = panels.start * self.kv.keys.n_panel()..panels.end * self.kv.keys.n_panel();
        if self.run.sink.is_some() {
            let n = block.len() * self.run.visibility.n_keys;
            s.shown_scores.clear();
            s.shown_scores.resize(n, f32::NEG_INFINITY);
        }
        s.factors.clear();
        s.ends.clear();
        let (from, stride) = self.head.queries_from(block.start);
        s.q_norms = row_norms(level, from, stride, block.len(), self.math.spec.d_head);
        let first = block.start - to.queries.start;
        let rows = &mut to.rows[first..first + block.len()];
        for (row_idx, query_idx) in block.clone().enumerate() {
            rows[row_idx] = self.row(row_idx, query_idx, &keys, strip, s);
        }
        self.columns(&block, &keys, rows, strip, s);
        self.show(&block, &keys, s);

        // Dividing by the weights' sum only here takes one multiplication per output instead of one per weight.
        let values = &self.kv.values;
        s.z.clear();
        s.z.resize(block.len() * values.width());
        let keys = keys.start..keys.end.min(self.run.visibility.n_keys);
        weigh(
            level,
            &s.scores,
            width,
            &s.ends,
            keys.clone(),
            values,
            &mut s.z,
        ); // [row, d_value]
        let spec = self.math.spec;
        let work = block.len() * keys.len() * (spec.d_head + spec.d_value);
        self.run.pace.did(work as u64);
        let rows = s.z.chunks(values.width()).zip(&s.factors);
        for (row_idx, (from, factor)) in rows.enumerate() {
            let to = to.z.row(first + row_idx).iter_mut();
            to.zip(from).for_each(|(z, sum)| *z = sum * factor);
        }
    }

    /// q·k of a block with the key panels that any of its queries sees.
    fn products(&self, block: &Range<usize>, s: &mut Scratch) -> Range<usize> {
        let (level, keys) = (self.level, &self.kv.keys);
        let seen = self.keys_of(block);
        let panels = seen.start / keys.n_panel()..seen.end.div_ceil(keys.n_panel());
        let (from, stride) = self.head.queries_from(block.start);
        s.queries
            .pack(level, from, stride, block.len(), self.math.spec.d_head);
        let n_scores = Queries::padded_rows(level, block.len()) * self.width();
        if s.scores.len() < n_scores {
            s.scores.resize(n_scores);
        }
        let scores = &mut s.scores[..n_scores];
        scores_of(level, &s.queries, keys, panels.clone(), scores); // [row, key]
        panels
    }

    /// Processes one row: turns products into weights in place, with zeros outside its range.
    fn row(
        &self,
        row_idx: usize,
        query_idx: usize,
        keys: &Range<usize>,
        strip: &mut StripRun,
        s: &mut Scratch,
    ) -> RowSummary {
        let (width, n_keys) = (self.width(), self.run.visibility.n_keys);
        let is_real = self.run.visibility.is_real_query(query_idx);
        let range = self.run.visibility.range(query_idx);
        let at = row_idx * width;
        let q_norm = s.q_norms[row_idx];
        let mut summary = RowSummary {
            q_norm,
            ..RowSummary::empty(is_real)
        };
        let row = &mut s.scores[at..at + width];
        let bias = self.bias.row(&self.math, query_idx, &mut s.bias);
        let visible = self.visible(query_idx, &mut s.seen);
        let scored = self.scored(row, query_idx, (bias, visible), &mut s.top);
        let (scores, visible) = (scored.sums, scored.visible);
        summary.recall = scored.recall;
        let is_finite = scores.sum.is_finite() && scores.raw_sum.is_finite();
        if scores.n == 0 {
            row[keys.clone()].fill(0.0);
            s.pattern.resize(n_keys, 0.0);
            fill_unseen(self.math.spec.no_visible, &mut s.pattern, &mut summary);
            let spreads = self.math.spec.no_visible != NoVisible::Zero;
            if spreads {
                row[..n_keys].copy_from_slice(&s.pattern);
            }
            s.ends.push(if spreads { n_keys } else { 0 });
            s.factors.push(1.0);
        } else if !is_finite {
            s.ends.push(range.end);
            summary = self.reference_row(row_idx, query_idx, q_norm, keys, s);
        } else {
            if self.run.sink.is_some() {
                let shown = &mut s.shown_scores[row_idx * n_keys..][range.clone()];
                shown.copy_from_slice(&row[range.clone()]);
            }
            if self.weights.is_some() {
                s.row_scores.clear();
                s.row_scores.extend_from_slice(row);
            }
            let fast = self.weights(row, (&range, visible), query_idx, scores);
            self.fill_contribution(query_idx, (row, &s.row_scores), &range, &fast, &mut summary);
            row[keys.start..range.start].fill(0.0);
            row[range.end..keys.end].fill(0.0);
            s.factors.push(fast.factor());
            s.ends.push(range.end);
            fast.summarise(row[scores.argmax], &mut summary);
            summary.k_norm_sq_sum = self.key_squares(query_idx, &range, visible);
        }
        let factor = s.factors.last().copied().unwrap_or(0.0);
        let row = &s.scores[at..at + width];
        let p = |key_idx: usize| {
            if keys.contains(&key_idx) {
                row[key_idx] * factor
            } else {
                0.0
            }
        };
        if scores.n > 0 {
            let within = |key_idx: Option<usize>| {
                let key_idx = key_idx.filter(|key_idx| *key_idx < n_keys);
                key_idx.map_or(f32::NAN, p)
            };
            summary.first_mass = within(self.run.visibility.first_real_key());
            summary.diagonal_mass = within(Some(query_idx));
            summary.previous_mass = within(self.run.visibility.previous_real_key(query_idx));
            let later = (query_idx + 1).max(keys.start)..range.end;
            summary.add_later(later.map(p));
        }
        if let Some(repeats) = self.run.repeats
            && repeats.before(query_idx).next().is_some()
        {
            (summary.duplicate_mass, summary.induction_mass) = repeats.masses(query_idx, p);
        }
        if self.sampled.contains(&query_idx) {
            strip.samples.extend((0..n_keys).map(p));
        }
        summary
    }

    /// Scores → weights, with their sums.
    fn weights(
        &self,
        row: &mut [f32],
        (range, visible): (&Range<usize>, Option<&[f32]>),
        query_idx: usize,
        scores: ScoreSums,
    ) -> FastRow {
        let sink = self.math.sink(query_idx);
        let max = sink.map_or(scores.max, |sink| scores.max.max(sink));
        let around = (max, (scores.sum / scores.n as f64) as f32);
        let axis = self.math.spec.softmax_axis;
        let (level, range) = (self.level, range.clone());
        let pattern = match axis {
            SoftmaxAxis::Keys => exp_row(level, row, range, visible, around, query_idx),
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => {
                let log_sums = self.log_sums(query_idx);
                row_by_log_sums(level, row, range, visible, log_sums, around, query_idx)
            }
        };
        FastRow {
            scores,
            pattern,
            axis,
            max,
            sink,
            is_plain: self.math.spec.softcap.is_none() && matches!(self.bias, RowBias::None),
        }
    }

    /// Computes a row with a non-finite score by the reference path, and leaves its probabilities in the row.
    fn reference_row(
        &self,
        row_idx: usize,
        query_idx: usize,
        q_norm: f32,
        keys: &Range<usize>,
        s: &mut Scratch,
    ) -> RowSummary {
        let (width, n_keys) = (self.width(), self.run.visibility.n_keys);
        s.products.resize(n_keys, 0.0);
        s.pattern.resize(n_keys, 0.0);
        self.head
            .products(&(query_idx..query_idx + 1), n_keys, &mut s.products);
        let summary = finish_row(
            &self.math,
            query_idx,
            q_norm,
            &mut s.products,
            &mut s.pattern,
        );
        if self.run.sink.is_some() {
            s.shown_scores[row_idx * n_keys..][..n_keys].copy_from_slice(&s.products);
        }
        let row = &mut s.scores[row_idx * width..][..width];
        row[keys.clone()].fill(0.0);
        let seen = keys.start..keys.end.min(n_keys);
        row[seen.clone()].copy_from_slice(&s.pattern[seen]);
        s.factors.push(1.0);
        summary
    }

    /// Adds a block to each key's column sum and to the pooled map. Padded queries are ignored.
    fn columns(
        &self,
        block: &Range<usize>,
        keys: &Range<usize>,
        rows: &[RowSummary],
        strip: &mut StripRun,
        s: &mut Scratch,
    ) {
        let (width, n_keys) = (self.width(), self.run.visibility.n_keys);
        let per_cell = strip.pooled.queries_per_cell();
        let is_real = |query_idx: usize| self.run.visibility.is_real_query(query_idx);
        let mut start = block.start;
        while start < block.end {
            if !is_real(start) {
                start += 1;
                continue;
            }
            // Real queries of one cell: their maxima are added to the pooled map together.
            let most = ((start / per_cell + 1) * per_cell).min(block.end);
            let end = (start..most).find(|q| !is_real(*q)).unwrap_or(most);
            let here = start - block.start..end - block.start;
            s.maxima.clear();
            s.maxima.resize(width, 0.0);
            add_columns(
                self.level,
                &s.scores[here.start * width..here.end * width],
                width,
                &s.factors[here],
                keys.clone(),
                &mut strip.column_sums,
                &mut s.maxima,
            );
            let shown = keys.start..keys.end.min(n_keys);
            strip
                .pooled
                .add_maxima(start, shown.start, &s.maxima[shown]);
            start = end;
        }
        // Vector maxima may ignore a NaN: rows that contain one are added once more.
        for (row_idx, (query_idx, summary)) in block.clone().zip(rows).enumerate() {
            let is_odd = summary.is_nonfinite || summary.mass.is_nan();
            if summary.is_real && is_odd {
                let row = &s.scores[row_idx * width..][..n_keys];
                let shown: Vec<f32> = (0..n_keys)
                    .map(|key_idx| {
                        if keys.contains(&key_idx) {
                            row[key_idx]
                        } else {
                            0.0
                        }
                    })
                    .collect();
                strip.pooled.add_row(query_idx, &shown);
            }
        }
    }

    /// Passes a block to the sink, if there is one.
    fn show(&self, block: &Range<usize>, keys: &Range<usize>, s: &mut Scratch) {
        let Some(sink) = self.run.sink else {
            return;
        };
        let (width, n_keys) = (self.width(), self.run.visibility.n_keys);
        let shown = keys.start..keys.end.min(n_keys);
        s.shown_pattern.clear();
        s.shown_pattern.resize(block.len() * n_keys, 0.0);
        let rows = s
            .shown_pattern
            .chunks_mut(n_keys)
            .zip(s.scores.chunks(width));
        for ((to, from), factor) in rows.zip(&s.factors) {
            let to = to[shown.clone()].iter_mut().zip(&from[shown.clone()]);
            to.for_each(|(p, weight)| *p = weight * factor);
        }
        sink.block(
            self.head.head_idx,
            block.start,
            &s.shown_scores,
            &s.shown_pattern,
        );
    }

    /// log Σ over some queries of e^s, per key: the first of two passes of a softmax over queries.
    pub(super) fn column_sums(&self, queries: Range<usize>) -> Option<ColumnLogSums> {
        let mut sums = ColumnLogSums::new(self.run.visibility.n_keys);
        self.each_block(queries, |scores, block, keys| {
            sums.add(self.level, scores, self.width(), block.len(), keys);
        })?;
        Some(sums)
    }

    /// Adds the scores of some queries to the sums of each of them. // sums: [query]
    pub(super) fn add_rows(&self, queries: Range<usize>, sums: &mut [ColumnLogSums]) -> Option<()> {
        let (width, first) = (self.width(), queries.start);
        self.each_block(queries, |scores, block, keys| {
            let rows = scores.chunks(width).zip(&mut sums[block.start - first..]);
            rows.take(block.len())
                .for_each(|(row, sums)| sums.add(self.level, row, width, 1, keys.clone()));
        })
    }

    /// Gives the scores of some queries block by block, −∞ where a key is not visible, with the keys that they stand for;
    /// `None` if it was stopped. // [row, width]
    fn each_block(
        &self,
        queries: Range<usize>,
        mut take: impl FnMut(&[f32], Range<usize>, Range<usize>),
    ) -> Option<()> {
        SCRATCH.with_borrow_mut(|s| {
            let (width, n_keys) = (self.width(), self.run.visibility.n_keys);
            for block in self.blocks(queries) {
                if self.run.pace.stops() {
                    return None;
                }
                let of = self.of(&block);
                let panels = of.products(&block, s);
                let n_panel = of.kv.keys.n_panel();
                let keys = panels.start * n_panel..panels.end * n_panel;
                for (row_idx, query_idx) in block.clone().enumerate() {
                    let range = self.run.visibility.range(query_idx);
                    let row = &mut s.scores[row_idx * width..][..width];
                    let bias = of.bias.row(&of.math, query_idx, &mut s.bias);
                    let visible = of.visible(query_idx, &mut s.seen);
                    of.scored(row, query_idx, (bias, visible), &mut s.top);
                    row[keys.start..range.start.max(keys.start)].fill(f32::NEG_INFINITY);
                    row[range.end.min(keys.end)..keys.end].fill(f32::NEG_INFINITY);
                }
                take(&s.scores, block, keys.start..keys.end.min(n_keys));
            }
            Some(())
        })
    }
}
