//! One block, top to bottom, one tensor step a line.

use std::borrow::Cow;
use std::ops::Range;

use super::context::{AttentionScratch, BlockContext, MlpScratch, Scratch};
use super::copies::{attend_copies, repeat};
use super::emit::{emit, offer, raw};
use super::experts::experts;
use super::heads::{Attending, run_heads};
use super::hook::{Hook, Hooks, NoHooks};
use super::source::NormSource;
use super::spec::{
    BlockSpec, CrossSpec, FeedForward, GateRule, Mixer, MlpSpec, ProjectionSpec, SelfSpec,
};
use super::weights::{AttentionWeights, BlockWeights, CrossWeights, MlpWeights};
use crate::attention::{
    AttentionSpec, Bias, BlockSink, HeadRows, HeadSummary, Repeats, RopeTable, Run, Visibility,
};
use crate::error::Result;
use crate::ops::Ops;

/// What one attention told, beside what it adds.
#[derive(Debug)]
pub struct AttentionRun {
    /// One per head.
    pub heads: Vec<HeadSummary>,
    /// ‖what a head alone adds‖. // [head, position]
    pub head_output_norms: Vec<Vec<f32>>,
}

/// What a block's attentions told, beside the residual it leaves.
#[derive(Debug)]
pub struct BlockRun {
    pub attention: AttentionRun,
    pub cross: Option<AttentionRun>,
}

/// Runs one block on the residual stream, in place.
///
/// # Errors
/// When the pace stops it, a tensor is not as the spec says, the device fails, or a hook cannot keep what it asked for.
pub fn run_block<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let (ops, s) = (context.ops, scratch);
    offer(ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]

    let Mixer::Attention(own) = &spec.mixer;
    let attention = run_heads(
        context,
        Attending {
            attention: &own.attention,
            projections: &own.projections,
            exceptions: &own.exceptions,
            pre: &spec.attn_pre,
            weights: &weights.attention,
        },
        resid,
        &mut s.attention,
        hooks,
    )?;
    let spread;
    let context = match hooks.spreads() {
        Some(copies) => {
            repeat(ops, &mut s.attention.z, copies)?;
            repeat(ops, resid, copies)?;
            if spec.adds_to_normed {
                repeat(ops, &mut s.attention.normed, copies)?;
            }
            spread = context.spread(copies);
            &spread
        }
        None => context,
    };
    let attention = output(
        context,
        own.attention.n_heads,
        attention,
        &weights.o,
        &mut s.attention,
        hooks,
    )?;
    raw(ops, hooks, Hook::AttnOut, &s.attention.out)?;
    normed_in_place(
        ops,
        weights.attn_out.as_ref(),
        &mut s.attention.out,
        &mut s.spare,
    )?;
    scaled(ops, spec.branch_scale, &mut s.attention.out)?;
    offer(ops, hooks, Hook::AttnOut, &mut s.attention.out)?; // [position, d_model]
    if spec.adds_to_normed {
        ops.copy(&s.attention.normed, resid)?;
    }
    if !spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
        normed_in_place(ops, weights.attn_post.as_ref(), resid, &mut s.spare)?;
    }

    let cross = match (&spec.cross, &weights.cross) {
        (Some(spec), Some(weights)) => {
            // In a parallel block the output of self-attention is still needed: cross-attention has buffers of its own.
            let mut of_cross = AttentionScratch::default();
            Some(run_cross(
                context,
                spec,
                weights,
                resid,
                &mut of_cross,
                &mut s.spare,
                hooks,
            )?)
        }
        _ => None,
    };

    let mlp_in = match &weights.mlp_pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            &s.normed
        }
        None => &*resid,
    };
    let mlp = weights.mlp.as_ref();
    feed_forward(
        context,
        &spec.feed_forward,
        mlp,
        mlp_in,
        &mut s.mlp,
        &mut s.mlp_out,
    )?; // [position, d_model]
    raw(ops, hooks, Hook::MlpOut, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_out.as_ref(), &mut s.mlp_out, &mut s.spare)?;
    scaled(ops, spec.branch_scale, &mut s.mlp_out)?;
    offer(ops, hooks, Hook::MlpOut, &mut s.mlp_out)?;

    if spec.adds_to_normed && weights.mlp_pre.is_some() {
        ops.copy(&s.normed, resid)?;
    }
    if spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
    }
    ops.add(resid, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_post.as_ref(), resid, &mut s.spare)?;
    emit(ops, hooks, Hook::ResidPost, resid)?;
    Ok(BlockRun { attention, cross })
}

/// Attends to the encoder's output and adds what it finds to the residual.
pub(super) fn run_cross<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &CrossSpec,
    weights: &CrossWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut AttentionScratch<O>,
    spare: &mut O::Buffer,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    let mut none = NoHooks;
    let hooks: &mut dyn Hooks = match hooks.cross() {
        Some(hooks) => hooks,
        None => &mut none,
    };
    offer(ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]
    let attention = run_heads(
        context,
        Attending {
            attention: &spec.attention,
            projections: &spec.projections,
            exceptions: &spec.exceptions,
            pre: &spec.pre,
            weights: &weights.attention,
        },
        resid,
        s,
        hooks,
    )?;
    let attention = output(
        context,
        spec.attention.n_heads,
        attention,
        &weights.o,
        s,
        hooks,
    )?;
    offer(ops, hooks, Hook::AttnOut, &mut s.out)?; // [position, d_model]
    ops.add(resid, &s.out)?;
    normed_in_place(ops, weights.post.as_ref(), resid, spare)?;
    emit(ops, hooks, Hook::ResidPost, resid)?;
    Ok(attention)
}

/// Runs the self-attention of some heads alone, from a block's input: for the head on screen. All of them have the spec of
/// the first; `pre` is the norm before it.
///
/// # Errors
/// As for [`run_block`].
pub fn attend_heads<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, pre): (&SelfSpec, &Option<NormSource>),
    resid: &O::Buffer,
    heads: Range<usize>,
    sink: Option<&dyn BlockSink>,
) -> Result<AttendedHeads<O>> {
    let mut s = AttentionScratch::<O>::default();
    let n_heads = spec.attention.n_heads;
    let (attention, projections) = spec.of_head(heads.start);
    let weights = AttentionWeights::read(context.shelf(), pre, projections, n_heads)?;
    project(
        context,
        attention,
        projections,
        &weights,
        resid,
        &mut s,
        &mut NoHooks,
    )?;
    let visibility = context.visibility(attention);
    let summaries = attend(
        context,
        attention,
        &weights,
        &visibility,
        heads,
        sink,
        &mut s,
    )?;
    Ok(AttendedHeads {
        summaries,
        visibility,
        sinks: weights.sinks.map(Cow::into_owned),
        q: s.q,
        k: s.k,
    })
}

/// Some heads of a block that ran alone, and what their scores were made of.
pub struct AttendedHeads<O: Ops> {
    pub summaries: Vec<HeadSummary>,
    visibility: Visibility,
    sinks: Option<Vec<f32>>,
    q: O::Buffer,
    k: O::Buffer,
}

impl<O: Ops> AttendedHeads<O> {
    /// What any part of one head's map can be computed from.
    ///
    /// # Errors
    /// When the device fails.
    pub fn rows(
        &self,
        context: &BlockContext<'_, O>,
        spec: &AttentionSpec,
        head_idx: usize,
    ) -> Result<HeadRows> {
        let of_head = |buffer: &O::Buffer, head_idx: usize| -> Result<Vec<f32>> {
            let host = context.ops.get(buffer)?;
            let rows = host.values.chunks(host.width);
            let columns = head_idx * spec.d_head..(head_idx + 1) * spec.d_head;
            Ok(rows
                .flat_map(|row| row[columns.clone()].iter().copied())
                .collect())
        };
        let (n_queries, n_keys) = (self.visibility.n_queries, self.visibility.n_keys);
        let bias_by_distance = match (&spec.bias, &context.bucket_values) {
            (Bias::Buckets(buckets), Some(values)) => {
                buckets.by_distance(values, spec.n_heads, head_idx, n_queries, n_keys)
            }
            _ => Vec::new(),
        };
        Ok(HeadRows {
            q: of_head(&self.q, head_idx)?,                  // [query, d_head]
            k: of_head(&self.k, spec.kv_head_of(head_idx))?, // [key, d_head]
            spec: spec.clone(),
            head_idx,
            visibility: self.visibility.clone(),
            sink: self.sinks.as_ref().map(|sinks| sinks[head_idx]),
            bias_by_distance,
            positions: context.sequence.positions.clone(),
        })
    }
}

/// Fills q, k and v from the attention's input, positions applied.
pub(super) fn project<O: Ops>(
    context: &BlockContext<'_, O>,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    project_only(context, attention, spec, weights, resid, s)?;
    norm_queries_and_keys(context.ops, spec, weights, s)?;
    let ops = context.ops;
    emit(ops, hooks, Hook::Q, &s.q)?;
    emit(ops, hooks, Hook::K, &s.k)?;
    emit(ops, hooks, Hook::V, &s.v)?;
    if let Some(rope) = &attention.rope {
        let table = RopeTable::new(rope, &context.positions());
        ops.rope(&mut s.q, &table, attention.d_head)?;
        ops.rope(&mut s.k, &table, attention.d_head)?;
    }
    emit(ops, hooks, Hook::RotQ, &s.q)?;
    emit(ops, hooks, Hook::RotK, &s.k)
}

/// Fills q, k and v from the attention's input, before norms and positions.
pub(super) fn project_only<O: Ops>(
    context: &BlockContext<'_, O>,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let ops = context.ops;
    let attn_in = match &weights.pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            &s.normed
        }
        None => resid,
    };
    // Only the attention to an encoder's output has keys that are not its queries' tokens.
    let keys_in = match &context.memory {
        Some(memory) if attention.is_cross => memory.hidden,
        _ => attn_in,
    };
    match &weights.latent {
        None => {
            ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?; // [position, n_heads · d_head]
            ops.linear(keys_in, &weights.k, &mut s.k, context.pace)?; // [position, n_kv_heads · d_head]
            ops.linear(keys_in, &weights.v, &mut s.v, context.pace)?; // [position, n_kv_heads · d_value]
        }
        Some(latent) => {
            match &latent.q {
                Some((down, norm)) => {
                    ops.linear(attn_in, down, &mut s.latent, context.pace)?; // [position, d_latent]
                    ops.norm(&s.latent, norm, &mut s.normed_latent)?;
                    ops.linear(&s.normed_latent, &weights.q, &mut s.q, context.pace)?;
                }
                None => ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?,
            }
            ops.linear(keys_in, &latent.kv, &mut s.latent, context.pace)?; // [position, d_latent]
            ops.norm(&s.latent, &latent.kv_norm, &mut s.normed_latent)?;
            ops.linear(&s.normed_latent, &weights.k, &mut s.own_key, context.pace)?; // [position, n_heads · own]
            ops.linear(&s.normed_latent, &weights.v, &mut s.v, context.pace)?;
            ops.linear(keys_in, &latent.shared_key, &mut s.shared_key, context.pace)?; // [position, shared]
            ops.join_heads(&s.own_key, &s.shared_key, attention.n_kv_heads, &mut s.k)?;
        }
    }
    if let Some(limit) = spec.clip {
        for values in [&mut s.q, &mut s.k, &mut s.v] {
            ops.clip(values, limit)?;
        }
    }
    Ok(())
}

/// Applies the norms of queries and keys, where there are any.
pub(super) fn norm_queries_and_keys<O: Ops>(
    ops: &O,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    if let (Some(norm), Some(source)) = (&weights.q_norm, &spec.q_norm) {
        ops.norm_heads(&mut s.q, norm, source.width)?;
    }
    if let (Some(norm), Some(source)) = (&weights.k_norm, &spec.k_norm) {
        ops.norm_heads(&mut s.k, norm, source.width)?;
    }
    Ok(())
}

/// Scores, pattern and Σ p·v of some heads.
pub(super) fn attend<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    weights: &AttentionWeights<'_, O>,
    visibility: &Visibility,
    heads: Range<usize>,
    sink: Option<&dyn BlockSink>,
    s: &mut AttentionScratch<O>,
) -> Result<Vec<HeadSummary>> {
    if let Some(copies) = context.copies {
        let run = (visibility, heads, weights.sinks.as_deref());
        attend_copies(context, spec, run, copies, s)?;
        return Ok(Vec::new());
    }
    let repeats = (!spec.is_cross)
        .then(|| Repeats::of_real(&context.sequence.tokens, context.sequence.real.as_deref()));
    let run = Run {
        spec,
        repeats: repeats.as_ref(),
        visibility,
        heads,
        sinks: weights.sinks.as_deref(),
        bucket_values: context.bucket_values.as_deref(),
        positions: &context.sequence.positions,
        sink,
        pace: context.pace,
    };
    context.ops.attend(&run, &s.q, &s.k, &s.v, &mut s.z) // [position, n_heads · d_value]
}

/// What all heads together add.
fn output<O: Ops>(
    context: &BlockContext<'_, O>,
    n_heads: usize,
    heads: Vec<HeadSummary>,
    o: &O::Linear<'_>,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    offer(ops, hooks, Hook::Z, &mut s.z)?;
    let head_output_norms = match context.copies {
        None => ops.head_output_norms(&s.z, o, n_heads, context.pace)?,
        Some(_) => Vec::new(),
    };
    ops.linear(&s.z, o, &mut s.out, context.pace)?; // [position, d_model]
    Ok(AttentionRun {
        heads,
        head_output_norms,
    })
}

/// What a feed-forward layer adds; experts read their own weights.
pub(super) fn feed_forward<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &FeedForward,
    weights: Option<&MlpWeights<'_, O>>,
    from: &O::Buffer,
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    match (spec, weights) {
        (FeedForward::Dense(mlp), Some(weights)) => run_mlp(context, mlp, weights, from, s, to),
        (FeedForward::Dense(_), None) => Ok(()),
        (FeedForward::Experts(spec), _) => experts(context, spec, from, s, to),
    }
}

/// down(act(up x)), or with a gate.
pub(super) fn run_mlp<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &MlpSpec,
    weights: &MlpWeights<'_, O>,
    from: &O::Buffer,
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    ops.linear(from, &weights.up, &mut s.hidden, pace)?; // [position, d_mlp]
    match (&weights.gate, spec.gate_rule) {
        (Some(gate), GateRule::Product) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            ops.activate(spec.activation, &mut s.gate)?;
            ops.multiply(&mut s.hidden, &s.gate)?;
        }
        (Some(gate), GateRule::Clamped { limit, alpha }) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            ops.clamped_gate(&mut s.hidden, &s.gate, limit, alpha)?;
        }
        (None, _) => ops.activate(spec.activation, &mut s.hidden)?,
    }
    ops.linear(&s.hidden, &weights.down, to, pace) // [position, d_model]
}

pub(super) fn scaled<O: Ops>(ops: &O, factor: f32, values: &mut O::Buffer) -> Result<()> {
    if factor == 1.0 {
        return Ok(());
    }
    ops.scale(values, factor)
}

pub(super) fn normed_in_place<O: Ops>(
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
