//! The plan to run one head in strips: its queries, its packed keys and values, and which keys each row sees.

use std::ops::Range;

use super::head::{Head, HeadInput};
use super::kv_head::KvHead;
use super::row::HeadMath;
use super::row_bias::RowBias;
use super::run::Run;
use super::spec::{NoVisible, SoftmaxAxis};
use crate::kernels::simd::{KeyNorms, Level, RowKnobs};

/// Queries per block: whole tiles of both products, and few enough that a block of scores stays in the L2 cache.
const BLOCK_ROWS: usize = 48;
/// Rows longer than this use half as many queries per block.
const LONG_ROW: usize = 4096;

/// Extra values after the last key, so that whole vectors can be read there.
pub(super) const MARGIN: usize = 64;

/// One head to run.
pub(super) struct HeadPlan<'a> {
    pub run: &'a Run<'a>,
    pub level: Level,
    pub head: Head<'a>,
    pub kv: &'a KvHead,
    pub math: HeadMath<'a>,
    pub bias: RowBias,
    /// 1 where a key is not padding, padded to the length of a row of scores.
    pub visible: Option<&'a [f32]>,
    /// log Σ over queries, padded to the length of a row of scores; only for a softmax over queries.
    pub column_log_sums: Vec<f32>,
    /// ‖v W_O‖, if known.
    pub weights: Option<KeyNorms>,
    /// Queries whose rows are sampled.
    pub sampled: &'a [usize],
    /// The plan for global tokens, if there are any.
    pub global: Option<Box<HeadPlan<'a>>>,
}

/// Queries per block, for rows of `width` scores.
pub(super) fn block_rows(width: usize) -> usize {
    if width > LONG_ROW {
        BLOCK_ROWS / 2
    } else {
        BLOCK_ROWS
    }
}

impl<'a> HeadPlan<'a> {
    /// A plan in which no token is global.
    pub(super) fn new(
        run: &'a Run<'a>,
        level: Level,
        (visible, sampled): (Option<&'a [f32]>, &'a [usize]),
        (input, kv): (HeadInput<'a>, &'a KvHead),
        math: HeadMath<'a>,
    ) -> Self {
        let head = Head::new(run.spec, input, math.head_idx);
        let weights = |norms| KeyNorms::new(norms, kv.keys.width());
        Self {
            run,
            level,
            head: head.with_first_query(run.visibility.first_query()),
            kv,
            bias: RowBias::of(&math),
            visible,
            column_log_sums: Vec::new(),
            weights: math.value_norms.map(weights),
            math,
            sampled,
            global: None,
        }
    }
}

impl HeadPlan<'_> {
    pub(super) fn width(&self) -> usize {
        self.kv.keys.width()
    }

    pub(super) fn blocks(&self, queries: Range<usize>) -> Vec<Range<usize>> {
        let n = block_rows(self.width());
        self.run.visibility.blocks(queries, n)
    }

    /// What the weights of a query are relative to, padded to the length of a row of scores; nothing for a softmax over keys.
    pub(super) fn log_sums(&self, query_idx: usize) -> &[f32] {
        match (self.math.spec.softmax_axis, self.math.log_sums) {
            (SoftmaxAxis::Queries, _) => &self.column_log_sums,
            (SoftmaxAxis::Heads, Some(log_sums)) => log_sums.of_row(query_idx),
            (SoftmaxAxis::Keys | SoftmaxAxis::Heads, _) => &[],
        }
    }

    /// The plan that a block's queries use.
    pub(super) fn of(&self, block: &Range<usize>) -> &Self {
        let global = self.global.as_deref();
        let global = global.filter(|_| self.run.visibility.is_global(block.start));
        global.unwrap_or(self)
    }

    /// The keys that any query of a block sees; all keys, if a query without visible keys fills its row.
    pub(super) fn keys_of(&self, block: &Range<usize>) -> Range<usize> {
        let visibility = self.run.visibility;
        let spreads = self.math.spec.no_visible != NoVisible::Zero;
        let mut all = visibility.n_keys..0;
        for query_idx in block.clone() {
            if spreads && visibility.n_visible(query_idx) == 0 {
                return 0..visibility.n_keys;
            }
            let range = visibility.range(query_idx);
            if !range.is_empty() {
                all = all.start.min(range.start)..all.end.max(range.end);
            }
        }
        if all.start > all.end { 0..0 } else { all }
    }

    /// 1 where a query sees a key of its range, padded to the length of a row of scores; `None` if it sees all of them.
    pub(super) fn visible<'a>(
        &'a self,
        query_idx: usize,
        seen: &'a mut Vec<f32>,
    ) -> Option<&'a [f32]> {
        let visibility = self.run.visibility;
        if !visibility.has_holes(query_idx) {
            return self.visible;
        }
        seen.clear();
        seen.resize(self.width() + MARGIN, 0.0);
        for key_idx in visibility.range(query_idx) {
            seen[key_idx] = f32::from(u8::from(visibility.is_seen(query_idx, key_idx)));
        }
        Some(seen)
    }

    pub(super) fn knobs<'a>(
        &'a self,
        query_idx: usize,
        bias: Option<&'a [f32]>,
        visible: Option<&'a [f32]>,
    ) -> RowKnobs<'a> {
        RowKnobs {
            scale: self.math.scale(query_idx),
            cap: self.math.spec.softcap,
            caps_bias: self.math.spec.caps_bias,
            bias,
            visible,
            inverse_norms: &self.kv.inverse_norms,
        }
    }

    /// Σ ‖k‖² of the visible keys of a range. `visible` has the flags of a row that keeps only some of its keys.
    pub(super) fn key_squares(
        &self,
        query_idx: usize,
        range: &Range<usize>,
        visible: Option<&[f32]>,
    ) -> f32 {
        let (before, visibility) = (&self.kv.squares_before, self.run.visibility);
        if let (Some(_), Some(flags)) = (self.math.spec.top_keys, visible) {
            let kept = range.clone().filter(|key_idx| flags[*key_idx] != 0.0);
            let norms = kept.map(|key_idx| f64::from(self.kv.norms[key_idx]));
            return norms.map(|norm| norm * norm).sum::<f64>() as f32;
        }
        let has_holes = visibility.has_holes(query_idx);
        if !has_holes && before.last().is_some_and(|all| all.is_finite()) {
            return (before[range.end] - before[range.start]) as f32;
        }
        // Prefix sums do not work with holes, or with a non-finite norm, even one outside the range.
        let visible = range
            .clone()
            .filter(|key_idx| visibility.is_seen(query_idx, *key_idx));
        let norms = visible.map(|key_idx| f64::from(self.kv.norms[key_idx]));
        norms.map(|norm| norm * norm).sum::<f64>() as f32
    }
}
