//! Keeps what attribution needs from a run: all values at one position; values and patterns of layers with requested sources.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_run::Tap;
use attnscope_spec::{Model, Stack};

/// One query's row of the attention pattern, for every head of a layer.
pub struct PatternRow {
    query_idx: usize,
    /// By head. // [key]
    rows: Mutex<BTreeMap<usize, Vec<f32>>>,
}

impl PatternRow {
    /// Row of one head.
    pub fn of(&self, head_idx: usize) -> Option<Vec<f32>> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(&head_idx).cloned()
    }
}

impl BlockSink for PatternRow {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let _ = scores;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        // All rows of a block have the same length; it is known from the placeholder row inserted first.
        let Some(offset) = self.query_idx.checked_sub(first_query) else {
            return;
        };
        let known = rows.get(&usize::MAX).map(Vec::len);
        let n_keys = known.unwrap_or(pattern.len());
        if let Some(row) = pattern.get(offset * n_keys..(offset + 1) * n_keys) {
            rows.insert(head_idx, row.to_vec());
        }
    }
}

/// Values that attribution reads.
pub struct Kept {
    position_idx: usize,
    /// Values at the position. // [width]
    pub rows: BTreeMap<(Stack, usize, Hook), Vec<f32>>,
    /// Branch outputs before their norm, at the position. // [d_model]
    pub raw: BTreeMap<(Stack, usize, Hook), Vec<f32>>,
    /// Row width and values, for layers whose sources are requested. // [key, n_kv_heads · d_value]
    pub values: BTreeMap<(Stack, usize), (usize, Vec<f32>)>,
    pub patterns: BTreeMap<(Stack, usize), PatternRow>,
    main: Stack,
}

impl Kept {
    /// Plans what to keep; `with_sources` selects the layers whose values and patterns are kept, `n_keys` gives their key counts.
    pub fn plan(
        model: &Model,
        position_idx: usize,
        n_keys: &dyn Fn(Stack) -> usize,
        with_sources: &dyn Fn(Stack, usize) -> bool,
    ) -> Self {
        let main = model.spec.main_stack();
        let mut patterns = BTreeMap::new();
        for grid in model.spec.grids() {
            if grid == Stack::Encoder {
                continue;
            }
            for layer_idx in (0..main.n_layers()).filter(|idx| with_sources(grid, *idx)) {
                // A row of zeros under an unused head number stores the number of keys.
                let rows = BTreeMap::from([(usize::MAX, vec![0.0; n_keys(grid)])]);
                let row = PatternRow {
                    query_idx: position_idx,
                    rows: Mutex::new(rows),
                };
                patterns.insert((grid, layer_idx), row);
            }
        }
        Self {
            position_idx,
            rows: BTreeMap::new(),
            raw: BTreeMap::new(),
            values: BTreeMap::new(),
            patterns,
            main: main.stack,
        }
    }

    fn is_of_main(&self, stack: Stack) -> bool {
        stack == self.main || stack == Stack::Cross
    }
}

impl Tap for Kept {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        let is_read = matches!(
            hook,
            Hook::ResidPre | Hook::Z | Hook::AttnOut | Hook::MlpOut | Hook::ResidPost
        );
        let is_source = hook == Hook::V && self.patterns.contains_key(&(stack, layer_idx));
        self.is_of_main(stack) && (is_read || is_source)
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        if hook == Hook::V {
            self.values
                .insert((stack, layer_idx), (width, values.to_vec()));
            return Ok(());
        }
        let row = values[self.position_idx * width..(self.position_idx + 1) * width].to_vec();
        self.rows.insert((stack, layer_idx, hook), row);
        Ok(())
    }

    fn wants_raw(&self) -> bool {
        true
    }

    fn raw(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        if self.is_of_main(stack) {
            let row = values[self.position_idx * width..(self.position_idx + 1) * width].to_vec();
            self.raw.insert((stack, layer_idx, hook), row);
        }
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        let row = self.patterns.get(&(stack, layer_idx))?;
        Some(row)
    }
}
