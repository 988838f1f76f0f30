//! Compares recorded scores and patterns of one attention with a run's blocks as they arrive.

use std::sync::{Mutex, PoisonError, RwLock};

use attnscope_compute::attention::{BlockSink, Pooled};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::gap::HookGap;
use super::head_map::HeadMap;
use super::lockstep::HeadSums;
use super::model_and_recording::ModelAndRecording;
use super::recording::Form;
use super::rows::{Keeping, Rows};

/// Recorded scores and pattern of one attention.
pub(super) struct CellRows<'a> {
    pub of: ModelAndRecording<'a>,
    pub state: RwLock<CellState>,
}

#[derive(Default)]
pub(super) struct CellState {
    rows: Rows,
    /// [head, query, key]
    scores: Option<Vec<f32>>,
    pattern: Option<Vec<f32>>,
    n_keys: usize,
    n_queries: usize,
    /// Maps of A and B, if the pattern was recorded. // [head]
    maps: Vec<Mutex<[Pooled; 2]>>,
    is_causal: bool,
}

impl BlockSink for CellRows<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let at = (head_idx * state.n_queries + first_query) * state.n_keys;
        let recorded = |of: &Option<Vec<f32>>, mine: &[f32]| -> Vec<f32> {
            let found = of.as_ref().and_then(|all| all.get(at..at + mine.len()));
            // A value that was not recorded is compared with itself, and the result is dropped.
            found.unwrap_or(mine).to_vec()
        };
        let (of_scores, of_pattern) = (
            recorded(&state.scores, scores),
            recorded(&state.pattern, pattern),
        );
        let (scores_a, scores_b) = self.of.ordered(scores, &of_scores);
        let (pattern_a, pattern_b) = self.of.ordered(pattern, &of_pattern);
        state.rows.compare(
            head_idx,
            first_query,
            (scores_a, pattern_a),
            (scores_b, pattern_b),
        );
        if let Some(maps) = state.maps.get(head_idx) {
            let mut maps = maps.lock().unwrap_or_else(PoisonError::into_inner);
            for (map, pattern) in maps.iter_mut().zip([pattern_a, pattern_b]) {
                for (nth, row) in pattern.chunks(state.n_keys.max(1)).enumerate() {
                    map.add_row(first_query + nth, row);
                }
            }
        }
    }
}

impl CellRows<'_> {
    fn change<T>(&self, change: impl FnOnce(&mut CellState) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the recorded scores and pattern of an attention.
    pub fn begin(&self, stack: Stack, layer_idx: usize) -> Result<()> {
        let of = self.of;
        let (queries, keys) = of.sequences((stack, layer_idx));
        let n_heads = of.model.spec.n_heads(stack, layer_idx);
        let form = Form::Cells {
            n_heads,
            n_queries: queries.len(),
            n_keys: keys.len(),
        };
        let read = |hook| {
            of.recording
                .values((Some(stack), Some(layer_idx), hook), form)
        };
        let (scores, pattern) = if n_heads > 0 {
            (read(Hook::Scores)?, read(Hook::Pattern)?)
        } else {
            (None, None)
        };
        self.change(|state| {
            let sizes = (n_heads, queries.len(), keys.len());
            state
                .rows
                .begin(sizes, queries.real.as_deref(), Keeping::default());
            (state.scores, state.pattern) = (scores, pattern);
            (state.n_queries, state.n_keys) = (queries.len(), keys.len());
            let n_maps = if state.pattern.is_some() { n_heads } else { 0 };
            let empty = || Mutex::new([(); 2].map(|()| Pooled::new(queries.len(), keys.len())));
            state.maps = (0..n_maps).map(|_| empty()).collect();
            let attention = of.model.spec.attention(stack, layer_idx);
            state.is_causal = attention.is_some_and(|of| of.mask.causal && !of.is_cross);
        });
        Ok(())
    }
}

/// Inserts the differences of scores and pattern in the order of execution, and returns the heads' divergences.
pub(super) fn cells_of(
    cells: &CellRows<'_>,
    (stack, layer_idx): (Stack, usize),
    gaps: &mut Vec<(Stack, Hook, HookGap)>,
) -> Vec<HeadSums> {
    let (has_scores, has_pattern, rows, maps) = cells.change(|state| {
        let has = (state.scores.is_some(), state.pattern.is_some());
        let maps = std::mem::take(&mut state.maps);
        let is_causal = state.is_causal;
        let maps = maps.into_iter().map(|both| {
            let both = both.into_inner().unwrap_or_else(PoisonError::into_inner);
            Box::new(both.map(|pooled| HeadMap { pooled, is_causal }))
        });
        let maps: Vec<Box<[HeadMap; 2]>> = maps.collect();
        (has.0, has.1, state.rows.finish(), maps)
    });
    let Some(rows) = rows.filter(|_| has_scores || has_pattern) else {
        return Vec::new();
    };
    let is_after = |(grid, hook, _): &(Stack, Hook, HookGap)| {
        (*grid == stack && *hook > Hook::Pattern)
            || (stack == Stack::Cross && *grid != stack && *hook > Hook::AttnOut)
    };
    let at = gaps.iter().position(is_after).unwrap_or(gaps.len());
    if has_pattern {
        gaps.insert(at, (stack, Hook::Pattern, rows.pattern));
    }
    if has_scores {
        gaps.insert(at, (stack, Hook::Scores, rows.scores));
    }
    let mut maps = maps.into_iter();
    let heads = rows.divergence.into_iter().enumerate();
    heads
        .filter(|_| has_pattern)
        .map(|(head_idx, divergence)| HeadSums {
            stack,
            layer_idx,
            head_idx,
            divergence,
            stats: None,
            maps: maps.next(),
        })
        .collect()
}
