//! The last residual → logits, in chunks of the vocabulary: never positions × vocabulary at once.

use std::ops::Range;

use super::Model;
use super::embed::apply_norm;
use super::spec::{HeadSpec, StackSpec};
use super::weights::{read_linear, read_linear_rows};
use crate::error::Result;
use crate::ops::Ops;

/// Values of one chunk of logits over all positions asked for: 16 MiB.
const CHUNK_VALUES: usize = 4 << 20;

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
/// When a tensor is not as the spec says, the device fails, or `each` stops.
pub fn logits_in_chunks<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    hidden: &O::Buffer,
    n_positions: usize,
    mut each: impl FnMut(Range<usize>, &[f32]) -> Result<()>,
) -> Result<()> {
    let tensors = &model.checkpoint.tensors;
    let mut transformed = O::Buffer::default();
    let from = match &head.transform {
        Some((dense, activation, norm)) => {
            let mut wide = O::Buffer::default();
            ops.linear(
                hidden,
                &ops.linear_weights(read_linear(tensors, dense)?)?,
                &mut wide,
            )?;
            ops.activate(*activation, &mut wide)?;
            apply_norm(ops, model, norm, &wide, &mut transformed)?;
            &transformed
        }
        None => hidden,
    };
    let d_vocab = head.unembed.n_out();
    let n_chunk = (CHUNK_VALUES / n_positions.max(1)).clamp(64, d_vocab.max(64));
    let mut logits = O::Buffer::default();
    for start in (0..d_vocab).step_by(n_chunk) {
        let range = start..(start + n_chunk).min(d_vocab);
        let weights =
            ops.linear_weights(read_linear_rows(tensors, &head.unembed, range.clone())?)?;
        ops.linear(from, &weights, &mut logits)?; // [position, range]
        each(range, &ops.get(&logits)?.values)?;
    }
    Ok(())
}
