//! Recomputes one head at full resolution from a kept layer input, for the Head panel.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use attnscope_compute::attention::{BlockSink, GlobalKeys, HeadRows, Pooled, SoftmaxAxis};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{
    BlockContext, Hook, Hooks, Input, LayerWeights, Scratch, attend_heads, run_layer,
};
use attnscope_spec::{BlockSpec, Model, Stack};

use super::histogram::Histogram;
use super::kept::Kept;
use super::pyramid::Pyramid;
use super::rerun::{Streams, input_of_layer};

/// Most cells per side of a detail. Longer sequences are max-pooled, and the screen says so.
pub const FULL_CELLS: usize = 4096;

/// Which head to compute, and how to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadQuery {
    pub stack: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    /// Hide key 0 and scale up the other probabilities of each row to the row's full mass.
    pub hides_first_key: bool,
    /// Also compute the contribution, if the norms of the values are known.
    pub weighs_values: bool,
}

/// A matrix of one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadMap {
    #[default]
    Pattern,
    Scores,
    /// The pattern times ‖v W_O‖ of each key.
    Contribution,
}

impl HeadMap {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Scores => "scores",
            Self::Contribution => "contribution",
        }
    }
}

/// Scores and pattern of one head.
#[derive(Debug, Clone)]
pub struct HeadDetail {
    pub n_queries: usize,
    pub n_keys: usize,
    /// −inf where masked; pooled into cells. // [query, key]
    pub scores: Pyramid,
    /// 0 where masked; pooled into cells. // [query, key]
    pub pattern: Pyramid,
    /// The pattern times ‖v W_O‖ of each key, if requested; pooled into cells. // [query, key]
    pub contribution: Option<Pyramid>,
    pub histogram: Histogram,
    /// Inputs for computing parts at full resolution, if cells are pooled and rows can be computed alone.
    pub rows: Option<Arc<HeadRows>>,
}

impl HeadDetail {
    /// One of the matrices; `None` if it was not computed.
    pub fn map(&self, which: HeadMap) -> Option<&Pyramid> {
        match which {
            HeadMap::Pattern => Some(&self.pattern),
            HeadMap::Scores => Some(&self.scores),
            HeadMap::Contribution => self.contribution.as_ref(),
        }
    }

    /// Queries and keys per cell: 1 unless the sequence is longer than [`FULL_CELLS`].
    pub fn pooling(&self) -> usize {
        self.pattern.finest().queries_per_cell
    }
}

/// Recomputes one head and keeps its full matrices.
///
/// # Errors
/// When no layer input was kept to start from, a tensor contradicts the spec, or the pace stops it.
pub fn head_detail<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    kept: &Kept,
    query: HeadQuery,
    pace: &dyn Pace,
) -> Result<HeadDetail> {
    let HeadQuery {
        stack,
        layer_idx,
        head_idx,
        hides_first_key,
        weighs_values,
    } = query;
    let spec = model.spec.stack_of(stack);
    let streams = Streams::<O>::of(ops, model, input, kept, stack)?;
    let sequence = streams.sequence;
    let memory = streams.memory();
    let of_layer = sequence.of_layer(spec, layer_idx);
    let n_keys = match &memory {
        Some(memory) if stack == Stack::Cross => memory.sequence.len(),
        _ => match spec.blocks().get(layer_idx).and_then(BlockSpec::own) {
            Some(own) => {
                let source = memory.as_ref().map(|memory| memory.sequence);
                of_layer.keys_of(&own.projections, source).len()
            }
            None => of_layer.len(),
        },
    };
    let tensors = &model.checkpoint.tensors;
    let context = BlockContext::of(ops, tensors, spec, sequence, memory, pace)?;
    let _reuse = reuse_buffers();
    let mut resid = input_of_layer(&context, model, kept, (stack, layer_idx))?;
    let mut scratch = Scratch::<O>::default();
    let n_queries = of_layer.len();
    let empty = Pooled::with_cells(n_queries, n_keys, FULL_CELLS);
    let mut scores = empty.clone();
    scores.cells.fill(f32::NEG_INFINITY);
    let mut sink = Collect {
        head_idx,
        n_keys,
        hides_first_key,
        weighs_values,
        value_norms: Vec::new(),
        globals: None,
        held: Mutex::new(Maps {
            scores,
            contribution: weighs_values.then(|| empty.clone()),
            pattern: empty,
        }),
    };
    let mut rows = None;
    if stack == Stack::Cross {
        // Cross-attention queries come after the block's self-attention, so the whole block has to run.
        let mut hooks = OnlyCross(&mut sink);
        let weights = LayerWeights::read(ops, tensors, spec, layer_idx, pace)?;
        run_layer(
            &context,
            spec,
            layer_idx,
            &weights,
            &mut resid,
            &mut scratch,
            &mut hooks,
        )?;
    } else {
        let block = spec.blocks().get(layer_idx);
        let Some((block, own)) = block.and_then(|block| Some((block, block.own()?))) else {
            let problem = format!("layer {layer_idx} has no softmax attention to show a head of");
            return Err(Error::Prompt(problem));
        };
        let only = head_idx..head_idx + 1;
        let context = context.over(&of_layer);
        let heads = attend_heads(&context, (block, own), &resid, only, &mut sink)?;
        let (spec, _) = own.of_head(head_idx);
        if n_queries.max(n_keys) > FULL_CELLS && spec.softmax_axis == SoftmaxAxis::Keys {
            rows = Some(Arc::new(heads.rows(&context, spec, head_idx)?));
        }
    }
    let maps = sink
        .held
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let histogram = Histogram::of(&maps.scores.cells);
    Ok(HeadDetail {
        n_queries,
        n_keys,
        scores: Pyramid::new(maps.scores),
        pattern: Pyramid::new(maps.pattern),
        contribution: maps.contribution.map(Pyramid::new),
        histogram,
        rows,
    })
}

/// A part of a head at full resolution.
#[derive(Debug, Clone)]
pub struct PartDetail {
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    pub scores: Pyramid,
    pub pattern: Pyramid,
    pub contribution: Option<Pyramid>,
}

impl PartDetail {
    /// One of the matrices; `None` if it was not computed.
    pub fn map(&self, which: HeadMap) -> Option<&Pyramid> {
        match which {
            HeadMap::Pattern => Some(&self.pattern),
            HeadMap::Scores => Some(&self.scores),
            HeadMap::Contribution => self.contribution.as_ref(),
        }
    }
}

/// Computes a part of a head from the rows that its detail kept.
pub fn part_detail(
    rows: &HeadRows,
    query: HeadQuery,
    queries: Range<usize>,
    keys: Range<usize>,
) -> PartDetail {
    let part = rows.part(queries, keys, |row| {
        if query.hides_first_key {
            *row = without_first(row);
        }
    });
    let pyramid = |cells: Vec<f32>| {
        Pyramid::new(Pooled {
            n_rows: part.queries.len(),
            n_cols: part.keys.len(),
            queries_per_cell: 1,
            keys_per_cell: 1,
            cells,
        })
    };
    let norms = rows.value_norms.as_ref().filter(|_| query.weighs_values);
    let contribution = norms.map(|norms| {
        let patterns = part.pattern.chunks(part.keys.len().max(1));
        let weighed = patterns
            .zip(part.queries.clone())
            .flat_map(|(row, query_idx)| {
                let global = rows.global_value_norms.as_ref();
                let global = global.filter(|_| rows.visibility.is_global(query_idx));
                row.iter().zip(&global.unwrap_or(norms)[part.keys.clone()])
            });
        pyramid(weighed.map(|(p, norm)| p * norm).collect())
    });
    PartDetail {
        contribution,
        scores: pyramid(part.scores),
        pattern: pyramid(part.pattern),
        queries: part.queries.clone(),
        keys: part.keys.clone(),
    }
}

/// Passes the row blocks of a block's cross-attention to a sink and ignores everything else.
struct OnlyCross<'a>(&'a mut Collect);

impl Hooks for OnlyCross<'_> {
    fn wants(&self, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        None
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        Some(self.0)
    }
}

impl Hooks for Collect {
    fn wants(&self, hook: Hook) -> bool {
        self.weighs_values && hook == Hook::ValueNorms
    }

    fn values(&mut self, _: Hook, norms: &[f32], n_keys: usize) -> Result<()> {
        let of_head = norms.chunks(n_keys.max(1)).nth(self.head_idx);
        self.value_norms = of_head.unwrap_or_default().to_vec();
        Ok(())
    }

    fn wants_globals(&self) -> bool {
        self.weighs_values
    }

    fn globals(&mut self, keys: &GlobalKeys) {
        self.globals = Some(keys.clone());
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        Some(self)
    }
}

/// Collects the row blocks of one head.
struct Collect {
    head_idx: usize,
    n_keys: usize,
    hides_first_key: bool,
    weighs_values: bool,
    /// ‖v W_O‖ of the head, set before its blocks arrive. // [key]
    value_norms: Vec<f32>,
    /// Keys and values that global tokens attend to.
    globals: Option<GlobalKeys>,
    held: Mutex<Maps>,
}

/// The matrices of one head, pooled into cells.
struct Maps {
    scores: Pooled,
    pattern: Pooled,
    contribution: Option<Pooled>,
}

impl BlockSink for Collect {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        if head_idx != self.head_idx {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = scores.chunks(self.n_keys).zip(pattern.chunks(self.n_keys));
        for (query_idx, (scores, pattern)) in (first_query..).zip(rows) {
            held.scores.add_row(query_idx, scores);
            if self.hides_first_key {
                held.pattern.add_row(query_idx, &without_first(pattern));
            } else {
                held.pattern.add_row(query_idx, pattern);
            }
            if let Some(contribution) = &mut held.contribution {
                let globals = self.globals.as_ref();
                let global = globals.and_then(|keys| keys.norms_of_query(head_idx, query_idx));
                let weighed = pattern.iter().zip(global.unwrap_or(&self.value_norms));
                let weighed: Vec<f32> = weighed.map(|(p, norm)| p * norm).collect();
                contribution.add_row(query_idx, &weighed);
            }
        }
    }
}

/// Removes key 0 from a row and scales the rest up to the row's mass. A row with all its mass on key 0 becomes zero.
pub(super) fn without_first(row: &[f32]) -> Vec<f32> {
    let mass: f32 = row.iter().sum();
    let rest: f32 = row.iter().skip(1).sum();
    let factor = if rest == 0.0 { 0.0 } else { mass / rest };
    row.iter()
        .enumerate()
        .map(|(key_idx, p)| if key_idx == 0 { 0.0 } else { p * factor })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::without_first;

    #[test]
    fn a_row_without_its_first_key_keeps_its_mass() {
        assert_eq!(without_first(&[0.5, 0.25, 0.25]), [0.0, 0.5, 0.5]);
        assert_eq!(without_first(&[1.0, 0.0]), [0.0, 0.0]);
    }
}
