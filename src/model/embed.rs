//! Tokens → the input of the first block.

use super::Model;
use super::spec::{NormSource, StackSpec, TableSource};
use super::weights::read_norm;
use crate::error::{Error, Result};
use crate::ops::Ops;

/// One sequence of tokens, as a model takes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    /// Position of each token; counted from 0.
    pub positions: Vec<usize>,
    /// Which tokens are real; `None` when all are.
    pub real: Option<Vec<bool>>,
}

impl Sequence {
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether a token is real, not padding.
    pub fn is_real(&self, position_idx: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[position_idx])
    }
}

/// Looks tokens and positions up and adds them; only the rows that are asked for are read.
///
/// # Errors
/// When an id or a position lies outside its table, or a tensor is not as the spec says.
pub fn embed<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    sequence: &Sequence,
    scratch: &mut O::Buffer,
    resid: &mut O::Buffer,
) -> Result<()> {
    let d_model = model.spec.d_model;
    let mut rows = vec![0.0; sequence.len() * d_model]; // [position, d_model]
    let tokens: Vec<usize> = sequence.tokens.iter().map(|id| *id as usize).collect();
    add_rows(model, &stack.embed.tokens, &tokens, &mut rows)?;
    if let Some(table) = &stack.embed.positions {
        add_rows(model, table, &sequence.positions, &mut rows)?;
    }
    if let Some(table) = &stack.embed.token_types {
        add_rows(model, table, &vec![0; sequence.len()], &mut rows)?;
    }
    match &stack.embed.norm {
        Some(norm) => {
            ops.put(&rows, d_model, scratch)?;
            apply_norm(ops, model, norm, scratch, resid)
        }
        None => ops.put(&rows, d_model, resid),
    }
}

/// Normalises with weights read for this one use.
pub(super) fn apply_norm<O: Ops>(
    ops: &O,
    model: &Model,
    norm: &NormSource,
    from: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let weights = ops.norm_weights(read_norm(&model.checkpoint.tensors, norm)?)?;
    ops.norm(from, &weights, to)
}

fn add_rows(model: &Model, table: &TableSource, indices: &[usize], rows: &mut [f32]) -> Result<()> {
    let d_model = model.spec.d_model;
    let view = model
        .checkpoint
        .tensors
        .expect(&table.tensor, &[table.n_rows, d_model])?;
    for (row, idx) in rows.chunks_mut(d_model).zip(indices) {
        let at = idx + table.offset;
        if at >= table.n_rows {
            let problem = format!(
                "row {at} of {} does not exist in {}",
                table.n_rows, table.tensor
            );
            return Err(Error::Prompt(problem));
        }
        for (to, from) in row.iter_mut().zip(view.widen_rows(at..at + 1).iter()) {
            *to += from;
        }
    }
    Ok(())
}
