//! Turns one row of products into scores on the vectorised kernels, with all keys or only those with the largest scores.

use super::plan::{HeadPlan, MARGIN};
use super::top_keys::keep_largest;
use crate::kernels::simd::{ScoreSums, score_row};

/// Buffers for rows that keep only some of their keys.
#[derive(Default)]
pub(super) struct TopBuffers {
    products: Vec<f32>,
    candidates: Vec<(f32, usize)>,
    /// 1 where a key is kept, padded to the length of a row of scores.
    kept: Vec<f32>,
}

impl HeadPlan<'_> {
    /// Turns the products of a row into scores in place, −∞ where a key is not visible. Also returns which keys of the row's range
    /// are visible, as `visible` does; a key beyond the largest scores is not.
    pub(super) fn scored<'a>(
        &'a self,
        row: &mut [f32],
        query_idx: usize,
        (bias, visible): (Option<&'a [f32]>, Option<&'a [f32]>),
        top: &'a mut TopBuffers,
    ) -> (ScoreSums, Option<&'a [f32]>) {
        let range = self.run.visibility.range(query_idx);
        let knobs = self.knobs(query_idx, bias, visible);
        let k = match self.math.spec.top_keys {
            Some(k) if k < range.len() => k,
            _ => return (score_row(self.level, row, range, &knobs), visible),
        };
        top.products.clear();
        top.products.extend_from_slice(row);
        let all = score_row(self.level, row, range.clone(), &knobs);
        // The definition decides what becomes of a row that is not finite.
        let is_finite = all.sum.is_finite() && all.raw_sum.is_finite();
        if !is_finite || all.n <= k {
            return (all, visible);
        }
        let is_visible = |key_idx: &usize| visible.is_none_or(|flags| flags[*key_idx] != 0.0);
        let keys = range.clone().filter(is_visible);
        top.candidates.clear();
        top.candidates
            .extend(keys.map(|key_idx| (row[key_idx], key_idx)));
        keep_largest(&mut top.candidates, k);
        top.kept.clear();
        top.kept.resize(self.width() + MARGIN, 0.0);
        for (_, key_idx) in &top.candidates {
            top.kept[*key_idx] = 1.0;
        }
        row.copy_from_slice(&top.products);
        let kept = Some(top.kept.as_slice());
        let knobs = self.knobs(query_idx, bias, kept);
        (score_row(self.level, row, range, &knobs), kept)
    }
}
