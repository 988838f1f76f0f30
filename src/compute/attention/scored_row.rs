//! Turns one row of products into scores on the vectorised kernels, with all keys or only those that sparse attention keeps.

use std::ops::Range;

use super::plan::{HeadPlan, MARGIN};
use super::spec::SoftmaxAxis;
use super::top_keys::{KeyRank, TopKeys, keep_largest};
use crate::kernels::simd::{ScoreSums, exp_row, score_row};

/// Buffers for rows that keep only some of their keys.
#[derive(Default)]
pub(super) struct TopBuffers {
    products: Vec<f32>,
    candidates: Vec<(f32, usize)>,
    /// 1 where a key is kept, padded to the length of a row of scores.
    kept: Vec<f32>,
}

/// A row of scores.
pub(super) struct Scored<'a> {
    pub sums: ScoreSums,
    /// Which keys of the row's range are visible and kept; `None` if all of them are.
    pub visible: Option<&'a [f32]>,
    /// As [`RowSummary::recall`](super::summary::RowSummary::recall).
    pub recall: f32,
}

impl HeadPlan<'_> {
    /// Turns the products of a row into scores in place, −∞ where a key is not visible or not kept.
    pub(super) fn scored<'a>(
        &'a self,
        row: &mut [f32],
        query_idx: usize,
        (bias, visible): (Option<&'a [f32]>, Option<&'a [f32]>),
        buffers: &'a mut TopBuffers,
    ) -> Scored<'a> {
        let range = self.run.visibility.range(query_idx);
        let knobs = self.knobs(query_idx, bias, visible);
        let whole = |sums| Scored {
            sums,
            visible,
            recall: f32::NAN,
        };
        let top = match self.math.spec.top_keys {
            Some(top) if top.by != KeyRank::Scores || top.n < range.len() => top,
            _ => return whole(score_row(self.level, row, range, &knobs)),
        };
        buffers.products.clear();
        buffers.products.extend_from_slice(row);
        let all = score_row(self.level, row, range.clone(), &knobs);
        // The definition decides what becomes of a row that is not finite.
        let is_finite = all.sum.is_finite() && all.raw_sum.is_finite();
        if !is_finite || !self.keep(top, row, (query_idx, &range, visible), buffers) {
            return whole(all);
        }
        let recall = match self.math.spec.softmax_axis {
            SoftmaxAxis::Keys => {
                let around = (all.max, (all.sum / all.n as f64) as f32);
                exp_row(self.level, row, range.clone(), visible, around, query_idx);
                share(&row[range.clone()], &buffers.kept[range.clone()])
            }
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => f32::NAN,
        };
        row.copy_from_slice(&buffers.products);
        let kept = Some(buffers.kept.as_slice());
        let knobs = self.knobs(query_idx, bias, kept);
        Scored {
            sums: score_row(self.level, row, range, &knobs),
            visible: kept,
            recall,
        }
    }

    /// Flags the keys that a row of scores keeps; returns false if it keeps all of them.
    fn keep(
        &self,
        top: TopKeys,
        scores: &[f32],
        (query_idx, range, visible): (usize, &Range<usize>, Option<&[f32]>),
        buffers: &mut TopBuffers,
    ) -> bool {
        let candidates = &mut buffers.candidates;
        let is_visible = |key_idx: &usize| visible.is_none_or(|flags| flags[*key_idx] != 0.0);
        let keys = range.clone().filter(is_visible);
        candidates.clear();
        candidates.extend(keys.map(|key_idx| (scores[key_idx], key_idx)));
        let n_visible = candidates.len();
        match (top.by, self.run.visibility.picked()) {
            (KeyRank::Scores, _) => keep_largest(candidates, top.n),
            (KeyRank::Indexer(_) | KeyRank::Window(_) | KeyRank::Pools, Some(picked)) => {
                let head_idx = self.math.head_idx;
                candidates.retain(|(_, key_idx)| picked.has(head_idx, query_idx, *key_idx));
            }
            (KeyRank::Indexer(_) | KeyRank::Window(_) | KeyRank::Pools, None) => {}
        }
        buffers.kept.clear();
        buffers.kept.resize(self.width() + MARGIN, 0.0);
        for (_, key_idx) in candidates.iter() {
            buffers.kept[*key_idx] = 1.0;
        }
        candidates.len() < n_visible
    }
}

/// The share of the flagged weights in all weights.
fn share(weights: &[f32], flags: &[f32]) -> f32 {
    let both = weights.iter().zip(flags);
    let (kept, all) = both.fold((0.0, 0.0), |(kept, all), (weight, flag)| {
        let weight = f64::from(*weight);
        (kept + weight * f64::from(*flag), all + weight)
    });
    (kept / all) as f32
}
