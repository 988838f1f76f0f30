//! The last residual → logits, in chunks of the vocabulary: never positions × vocabulary at once.

use std::ops::Range;

use super::Model;
use super::embed::apply_norm;
use super::spec::{HeadSpec, StackSpec};
use super::weights::{Shelf, read_linear_rows};
use crate::error::Result;
use crate::ops::Ops;
use crate::pace::Pace;

/// Values of one chunk: of logits over all positions asked for, and of the weights they come from. 4 MiB each.
const CHUNK_VALUES: usize = 1 << 20;

/// Applies the final norm, where there is one. // [position, d_model]
///
/// # Errors
/// When a tensor is not as the spec says, or the device fails.
pub fn final_hidden<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    resid: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    match &stack.final_norm {
        Some(norm) => apply_norm(ops, model, norm, resid, to),
        None => ops.copy(resid, to),
    }
}

/// Computes the logits of every position, and hands them over chunk by chunk.
///
/// `each` receives a range of the vocabulary and its logits. // [position, range]
///
/// # Errors
/// When a tensor is not as the spec says, the device fails, or the pace or `each` stops it.
pub fn logits_in_chunks<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    hidden: &O::Buffer,
    n_positions: usize,
    pace: &dyn Pace,
    mut each: impl FnMut(Range<usize>, &[f32]) -> Result<()>,
) -> Result<()> {
    let tensors = &model.checkpoint.tensors;
    let mut transformed = O::Buffer::default();
    let from = match &head.transform {
        Some(transform) => {
            let mut wide = O::Buffer::default();
            ops.linear(
                hidden,
                &Shelf { ops, tensors, pace }.linear(&transform.dense)?,
                &mut wide,
                pace,
            )?;
            if let Some(activation) = transform.activation {
                ops.activate(activation, &mut wide)?;
            }
            match &transform.norm {
                Some(norm) => apply_norm(ops, model, norm, &wide, &mut transformed)?,
                None => std::mem::swap(&mut wide, &mut transformed),
            }
            &transformed
        }
        None => hidden,
    };
    let d_vocab = head.unembed.n_out();
    let extra_bias = match &head.extra_bias {
        Some(name) => Some(tensors.expect(name, &[d_vocab])?.widen()?),
        None => None,
    };
    let per_row = n_positions.max(head.unembed.n_in).max(1);
    let n_chunk = (CHUNK_VALUES / per_row).clamp(64, d_vocab.max(64));
    let mut logits = O::Buffer::default();
    for start in (0..d_vocab).step_by(n_chunk) {
        let range = start..(start + n_chunk).min(d_vocab);
        let takes_bf16 = ops.takes_bf16();
        let host = read_linear_rows(tensors, &head.unembed, range.clone(), takes_bf16, pace)?;
        let weights = ops.linear_weights(host)?;
        ops.linear(from, &weights, &mut logits, pace)?; // [position, range]
        let mut values = ops.get(&logits)?.values;
        let is_plain = head.scale == 1.0 && head.softcap.is_none() && extra_bias.is_none();
        if !is_plain {
            let bias = extra_bias.as_deref().map(|bias| &bias[range.clone()]);
            finish(head, bias, range.len(), values.to_mut());
        }
        each(range, &values)?;
    }
    Ok(())
}

/// Scale, cap and bias of one chunk. // values: [position, range]
fn finish(head: &HeadSpec, bias: Option<&[f32]>, width: usize, values: &mut [f32]) {
    for row in values.chunks_mut(width) {
        for value in row.iter_mut() {
            *value *= head.scale;
            if let Some(cap) = head.softcap {
                *value = cap * (*value / cap).tanh();
            }
        }
        if let Some(bias) = bias {
            row.iter_mut().zip(bias).for_each(|(value, b)| *value += b);
        }
    }
}
