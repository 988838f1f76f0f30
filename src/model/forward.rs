//! One block, top to bottom, one tensor step a line.

use std::ops::Range;

use super::embed::Sequence;
use super::hook::{Hook, Hooks};
use super::spec::BlockSpec;
use super::weights::{AttentionWeights, BlockWeights};
use crate::attention::{BlockSink, HeadSummary, RopeTable, Run, Visibility};
use crate::checkpoint::Tensors;
use crate::error::Result;
use crate::ops::Ops;

/// Buffers that every block of a run reuses.
pub struct Scratch<O: Ops> {
    normed: O::Buffer,
    q: O::Buffer,
    k: O::Buffer,
    v: O::Buffer,
    z: O::Buffer,
    branch: O::Buffer,
    attn_out: O::Buffer,
    hidden: O::Buffer,
    gate: O::Buffer,
    mlp_out: O::Buffer,
}

impl<O: Ops> Default for Scratch<O> {
    fn default() -> Self {
        Self {
            normed: O::Buffer::default(),
            q: O::Buffer::default(),
            k: O::Buffer::default(),
            v: O::Buffer::default(),
            z: O::Buffer::default(),
            branch: O::Buffer::default(),
            attn_out: O::Buffer::default(),
            hidden: O::Buffer::default(),
            gate: O::Buffer::default(),
            mlp_out: O::Buffer::default(),
        }
    }
}

/// What a block's attention told, beside the residual it leaves.
#[derive(Debug)]
pub struct BlockRun {
    /// One per head.
    pub heads: Vec<HeadSummary>,
    /// ‖what a head alone adds‖. // [head, position]
    pub head_output_norms: Vec<Vec<f32>>,
}

/// Runs one block on the residual stream, in place.
///
/// # Errors
/// When `stop` says so, the device fails, or a hook cannot keep what it asked for.
#[expect(clippy::too_many_arguments)]
pub fn run_block<O: Ops>(
    ops: &O,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    sequence: &Sequence,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<BlockRun> {
    let s = scratch;
    emit(ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]

    project(ops, spec, &weights.attention, sequence, resid, s, hooks)?;
    let visibility = Visibility::of_self(
        spec.attention.mask,
        sequence.len(),
        sequence.real.as_deref(),
    );
    let run = Run {
        spec: &spec.attention,
        visibility: &visibility,
        heads: 0..spec.attention.n_heads,
        sinks: None,
        sink: hooks.blocks(),
        stop,
    };
    let heads = ops.attend(&run, &s.q, &s.k, &s.v, &mut s.z)?; // [position, n_heads · d_value]
    emit(ops, hooks, Hook::Z, &s.z)?;
    let head_output_norms = ops.head_output_norms(&s.z, &weights.o, spec.attention.n_heads)?;
    ops.linear(&s.z, &weights.o, &mut s.attn_out)?; // [position, d_model]
    normed_in_place(
        ops,
        weights.attn_out.as_ref(),
        &mut s.attn_out,
        &mut s.branch,
    )?;
    emit(ops, hooks, Hook::AttnOut, &s.attn_out)?;

    if !spec.is_parallel {
        ops.add(resid, &s.attn_out)?;
        normed_in_place(ops, weights.attn_post.as_ref(), resid, &mut s.branch)?;
    }
    let mlp_in = match &weights.mlp_pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            &s.normed
        }
        None => &*resid,
    };
    ops.linear(mlp_in, &weights.up, &mut s.hidden)?; // [position, d_mlp]
    match &weights.gate {
        Some(gate) => {
            ops.linear(mlp_in, gate, &mut s.gate)?; // [position, d_mlp]
            ops.activate(spec.mlp.activation, &mut s.gate)?;
            ops.multiply(&mut s.hidden, &s.gate)?;
        }
        None => ops.activate(spec.mlp.activation, &mut s.hidden)?,
    }
    ops.linear(&s.hidden, &weights.down, &mut s.mlp_out)?; // [position, d_model]
    normed_in_place(ops, weights.mlp_out.as_ref(), &mut s.mlp_out, &mut s.branch)?;
    emit(ops, hooks, Hook::MlpOut, &s.mlp_out)?;

    if spec.is_parallel {
        ops.add(resid, &s.attn_out)?;
    }
    ops.add(resid, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_post.as_ref(), resid, &mut s.branch)?;
    emit(ops, hooks, Hook::ResidPost, resid)?;
    Ok(BlockRun {
        heads,
        head_output_norms,
    })
}

/// Runs the attention of some heads alone, from a block's input: for the head on screen.
///
/// # Errors
/// As for [`run_block`].
#[expect(clippy::too_many_arguments)]
pub fn attend_heads<O: Ops>(
    ops: &O,
    tensors: &Tensors,
    spec: &BlockSpec,
    sequence: &Sequence,
    resid: &O::Buffer,
    heads: Range<usize>,
    sink: &dyn BlockSink,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<HeadSummary>> {
    let mut s = Scratch::<O>::default();
    let weights = AttentionWeights::read(ops, tensors, spec)?;
    project(
        ops,
        spec,
        &weights,
        sequence,
        resid,
        &mut s,
        &mut super::NoHooks,
    )?;
    let visibility = Visibility::of_self(
        spec.attention.mask,
        sequence.len(),
        sequence.real.as_deref(),
    );
    let run = Run {
        spec: &spec.attention,
        visibility: &visibility,
        heads,
        sinks: None,
        sink: Some(sink),
        stop,
    };
    ops.attend(&run, &s.q, &s.k, &s.v, &mut s.z)
}

/// Fills q, k and v from the block's input, positions applied.
fn project<O: Ops>(
    ops: &O,
    spec: &BlockSpec,
    weights: &AttentionWeights<'_, O>,
    sequence: &Sequence,
    resid: &O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    let attn_in = match &weights.pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            &s.normed
        }
        None => resid,
    };
    ops.linear(attn_in, &weights.q, &mut s.q)?; // [position, n_heads · d_head]
    ops.linear(attn_in, &weights.k, &mut s.k)?; // [position, n_kv_heads · d_head]
    ops.linear(attn_in, &weights.v, &mut s.v)?; // [position, n_kv_heads · d_value]
    emit(ops, hooks, Hook::Q, &s.q)?;
    emit(ops, hooks, Hook::K, &s.k)?;
    emit(ops, hooks, Hook::V, &s.v)?;
    if let Some(rope) = spec.attention.rope {
        let table = RopeTable::new(rope, &sequence.positions);
        ops.rope(&mut s.q, &table, spec.attention.d_head)?;
        ops.rope(&mut s.k, &table, spec.attention.d_head)?;
    }
    emit(ops, hooks, Hook::RotQ, &s.q)?;
    emit(ops, hooks, Hook::RotK, &s.k)
}

fn normed_in_place<O: Ops>(
    ops: &O,
    norm: Option<&O::Norm<'_>>,
    values: &mut O::Buffer,
    spare: &mut O::Buffer,
) -> Result<()> {
    if let Some(norm) = norm {
        ops.norm(values, norm, spare)?;
        std::mem::swap(values, spare);
    }
    Ok(())
}

fn emit<O: Ops>(ops: &O, hooks: &mut dyn Hooks, hook: Hook, values: &O::Buffer) -> Result<()> {
    if hooks.wants(hook) {
        let host = ops.get(values)?;
        hooks.values(hook, &host.values, host.width)?;
    }
    Ok(())
}
