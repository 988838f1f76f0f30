//! Recurrent encoder: every layer runs over the whole sequence, one direction after the other.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_spec::recurrent::{CellSpec, RecurrentEncoderSpec};

use super::cell::Cell;
use super::ends::FinalStates;
use crate::context::BlockContext;
use crate::emit::emit;
use crate::hook::{Hook, Hooks};

/// Turns embedded tokens into states, in place. Padded positions are skipped and get zeros, as in a packed sequence.
///
/// // resid: [position, d_embed] → [position, d_model]
///
/// # Errors
/// When a tensor differs from its spec, the device fails, or the pace stops it.
pub fn read<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &RecurrentEncoderSpec,
    resid: &mut O::Buffer,
    hooks: &mut dyn Hooks,
) -> Result<FinalStates> {
    let ops = context.ops;
    emit(ops, hooks, Hook::ResidPre, resid)?; // [position, d_embed]
    let n = context.sequence.len();
    let real: Vec<usize> = (0..n)
        .filter(|idx| context.sequence.is_real(*idx))
        .collect();
    let mut ends = FinalStates::default();
    for directions in &spec.layers {
        let width: usize = directions.iter().map(CellSpec::width).sum();
        let mut out = vec![0.0; n * width]; // [position, direction · width]
        let (mut h, mut c) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (nth, cell) in directions.iter().enumerate() {
            let mut cell = Cell::read(context.shelf(), context.shelf(), cell)?;
            let inputs = cell.read_inputs(resid)?; // [position, 4 · width]
            let n_gates = 4 * cell.h.len();
            let forwards = nth == 0;
            let order: &mut dyn Iterator<Item = &usize> = if forwards {
                &mut real.iter()
            } else {
                &mut real.iter().rev()
            };
            for position_idx in order {
                if context.pace.stops() {
                    return Err(Error::Cancelled);
                }
                cell.step(&inputs[position_idx * n_gates..][..n_gates])?;
                let to = &mut out[position_idx * width + at..];
                to[..cell.h.len()].copy_from_slice(&cell.h);
            }
            at += cell.h.len();
            h.extend(cell.h);
            c.extend(cell.c);
        }
        ends.h.push(h);
        ends.c.push(c);
        ops.put(&out, width, resid)?;
    }
    emit(ops, hooks, Hook::ResidPost, resid)?; // [position, d_model]
    Ok(ends)
}
