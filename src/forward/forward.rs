//! One block, top to bottom, one tensor step a line.

use std::ops::Range;

use attnscope_compute::attention::{
    AttentionSpec, BlockSink, Growth, HeadSummary, Repeats, RopeTable, Run, Visibility,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{BlockSpec, CrossSpec, FeedForward, GateRule, Mixer, MlpSpec, ProjectionSpec};

use super::block_weights::{
    AttentionWeights, BlockWeights, CrossWeights, MixerWeights, MlpWeights,
};
use super::context::{AttentionScratch, BlockContext, MlpScratch, Scratch};
use super::copies::{attend_copies, repeat};
use super::curve::curve;
use super::difference::{Difference, difference_of, pair_values};
use super::emit::{emit, offer, raw};
use super::experts::experts;
use super::global_tokens::{global_keys, project_globals};
use super::heads::{Attending, run_heads};
use super::hook::{Hook, Hooks, NoHooks};
use super::known::feed_forward_of_all;
use super::mixing::{Mixed, mix, nothing};
use super::narrow::add_narrow;
use super::past::KeysAndValues;
use super::rows::run_in_row;
use super::shared_keys::{leave, take};
use super::sparsity::cut_off;
use super::token_branch::end_block;

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
    /// `None` where something else than attention mixes the tokens.
    pub attention: Option<AttentionRun>,
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
    if let Some(row) = spec.row.as_deref() {
        return run_in_row(context, (spec, row), weights, resid, scratch, hooks);
    }
    offer(context.ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]
    let ran = run_branches(context, spec, weights, resid, scratch, hooks)?;
    emit(context.ops, hooks, Hook::ResidPost, resid)?;
    Ok(ran)
}

/// Runs the branches of a block on a residual, in place.
pub(super) fn run_branches<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let (ops, s) = (context.ops, scratch);
    let Mixed { heads, mut beside } = mix(context, spec, weights, resid, &mut s.attention, hooks)?;
    let spread;
    let context = match hooks.spreads() {
        Some(copies) => {
            let mixed = match heads {
                Some(_) => &mut s.attention.z,
                None => &mut s.attention.out,
            };
            repeat(ops, mixed, copies)?;
            repeat(ops, resid, copies)?;
            if let Some(beside) = &mut beside {
                repeat(ops, beside, copies)?;
            }
            if spec.adds_to_normed || spec.narrow.is_some() {
                repeat(ops, &mut s.attention.normed, copies)?;
            }
            spread = context.spread(copies);
            &spread
        }
        None => context,
    };
    let attention = match (heads, &spec.mixer, &weights.mixer) {
        (Some(heads), Mixer::Attention(own), MixerWeights::Attention(weights, o)) => {
            let (s, n_heads) = (&mut s.attention, own.attention.n_heads);
            let difference = weights.difference;
            Some(output(context, (n_heads, difference), heads, o, s, hooks)?)
        }
        _ => None,
    };
    if let Some(beside) = &beside {
        ops.add(&mut s.attention.out, beside)?;
    }
    raw(ops, hooks, Hook::AttnOut, &s.attention.out)?;
    normed_in_place(
        ops,
        weights.attn_out.as_ref(),
        &mut s.attention.out,
        &mut s.spare,
    )?;
    scaled(ops, spec.branch_scales[0], &mut s.attention.out)?;
    offer(ops, hooks, Hook::AttnOut, &mut s.attention.out)?; // [position, d_model]
    if spec.adds_to_normed {
        ops.copy(&s.attention.normed, resid)?;
    }
    scaled(ops, spec.resid_factors[0], resid)?;
    if !spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
        if let Some(narrow) = spec.narrow.as_deref() {
            let factor = spec.branch_scales[0];
            add_narrow(narrow, context, &s.attention.normed, factor, resid)?;
        }
        normed_in_place(ops, weights.attn_post.as_ref(), resid, &mut s.spare)?;
    }

    let cross = match (&spec.cross, &weights.cross) {
        (Some(spec), Some(weights)) => {
            // In a parallel block the output of self-attention is still needed: cross-attention has buffers of its own.
            let mut of_cross = AttentionScratch {
                past: s.cross_past.take(),
                ..AttentionScratch::default()
            };
            let ran = run_cross(
                context,
                spec,
                weights,
                resid,
                &mut of_cross,
                &mut s.spare,
                hooks,
            )?;
            s.cross_past = of_cross.past;
            Some(ran)
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
    feed_forward_of_all(
        context,
        &spec.feed_forward,
        mlp,
        (mlp_in, &*resid),
        &mut s.mlp,
        &mut s.mlp_out,
    )?; // [position, d_model]
    raw(ops, hooks, Hook::MlpOut, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_out.as_ref(), &mut s.mlp_out, &mut s.spare)?;
    scaled(ops, spec.branch_scales[1], &mut s.mlp_out)?;
    offer(ops, hooks, Hook::MlpOut, &mut s.mlp_out)?;

    if spec.adds_to_normed && weights.mlp_pre.is_some() {
        ops.copy(&s.normed, resid)?;
    }
    scaled(ops, spec.resid_factors[1], resid)?;
    if spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
    }
    ops.add(resid, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_post.as_ref(), resid, &mut s.spare)?;
    // Of several streams, what a block adds for its tokens goes to others than this one.
    let has_streams = spec.row.as_ref().is_some_and(|row| row.streams.is_some());
    if !has_streams {
        let end = (spec.by_token.as_deref(), spec.resid_scale.as_ref());
        end_block(context, end, &context.tokens(), resid)?;
    }
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
            o: &weights.o,
        },
        resid,
        s,
        hooks,
    )?;
    let attention = output(
        context,
        (spec.attention.n_heads, weights.attention.difference),
        attention,
        &weights.o,
        s,
        hooks,
    )?;
    raw(ops, hooks, Hook::AttnOut, &s.out)?;
    normed_in_place(ops, weights.out.as_ref(), &mut s.out, spare)?;
    offer(ops, hooks, Hook::AttnOut, &mut s.out)?; // [position, d_model]
    ops.add(resid, &s.out)?;
    normed_in_place(ops, weights.post.as_ref(), resid, spare)?;
    emit(ops, hooks, Hook::ResidPost, resid)?;
    Ok(attention)
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
    project_globals(context, attention, weights, resid, s)?;
    let ops = context.ops;
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if !spec.norms_after_rope {
        norm_queries_and_keys(ops, spec, weights, s)?;
    }
    leave(ops, spec, s)?;
    emit(ops, hooks, Hook::Q, &s.q)?;
    if has_keys {
        emit(ops, hooks, Hook::K, &s.k)?;
        emit(ops, hooks, Hook::V, &s.v)?;
    }
    if let Some(rope) = &attention.rope {
        let table = RopeTable::new(rope, &context.positions());
        ops.rope(&mut s.q, &table, attention.d_head)?;
        if has_keys {
            ops.rope(&mut s.k, &table, attention.d_head)?;
        }
    }
    if spec.norms_after_rope {
        norm_queries_and_keys(ops, spec, weights, s)?;
    }
    if let Some(growth) = attention.growth {
        let host = ops.get(&s.q)?;
        let (width, mut values) = (host.width, host.values.into_owned());
        grow(growth, &context.positions(), width, &mut values);
        ops.put(&values, width, &mut s.q)?;
    }
    emit(ops, hooks, Hook::RotQ, &s.q)?;
    let whole = if has_keys { &s.k } else { return Ok(()) };
    emit(ops, hooks, Hook::RotK, whole)
}

/// Multiplies the queries of every position by what they grow by. // q: [position, width]
pub(super) fn grow(growth: Growth, positions: &[usize], width: usize, q: &mut [f32]) {
    for (row, position) in q.chunks_mut(width.max(1)).zip(positions) {
        let factor = growth.factor(*position);
        row.iter_mut().for_each(|value| *value *= factor);
    }
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
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if spec.takes_keys() {
        ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?; // [position, n_heads · d_head]
        let keys = [&mut s.k, &mut s.v];
        take(ops, (attention, spec), (&s.q, &s.kept), keys)?;
    }
    match (&weights.latent, &weights.k, &weights.v) {
        (None, _, _) if !has_keys => ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?,
        (None, Some(k), Some(v)) => {
            ops.linear(attn_in, &weights.q, &mut s.q, context.pace)?; // [position, n_heads · d_head]
            ops.linear(keys_in, k, &mut s.k, context.pace)?; // [position, n_kv_heads · d_head]
            ops.linear(keys_in, v, &mut s.v, context.pace)?; // [position, n_kv_heads · d_value]
        }
        (Some(latent), Some(k), Some(v)) => {
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
            ops.linear(&s.normed_latent, k, &mut s.own_key, context.pace)?; // [position, n_heads · own]
            ops.linear(&s.normed_latent, v, &mut s.v, context.pace)?;
            ops.linear(keys_in, &latent.shared_key, &mut s.shared_key, context.pace)?; // [position, shared]
            ops.join_heads(&s.own_key, &s.shared_key, attention.n_kv_heads, &mut s.k)?;
        }
        _ => {}
    }
    if let Some(gate) = &weights.gate {
        ops.linear(attn_in, gate, &mut s.gate, context.pace)?; // [position, n_heads · d_value]
        ops.activate(Activation::Sigmoid, &mut s.gate)?;
    }
    if has_keys {
        pair_values(context.shelf(), spec, attention.n_kv_heads, &mut s.v)?;
    }
    if let Some(limit) = spec.clip {
        ops.clip(&mut s.q, limit)?;
        if has_keys {
            ops.clip(&mut s.k, limit)?;
            ops.clip(&mut s.v, limit)?;
        }
    }
    Ok(())
}

/// Applies the norms of queries, keys and values, where there are any.
pub(super) fn norm_queries_and_keys<O: Ops>(
    ops: &O,
    spec: &ProjectionSpec,
    weights: &AttentionWeights<'_, O>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    if let (Some(norm), Some(source)) = (&weights.q_norm, &spec.q_norm) {
        ops.norm_heads(&mut s.q, norm, source.width)?;
    }
    let has_keys = !s.past.as_ref().is_some_and(|past| past.is_whole);
    if let (Some(norm), Some(source), true) = (&weights.k_norm, &spec.k_norm, has_keys) {
        ops.norm_heads(&mut s.k, norm, source.width)?;
    }
    if let (Some(norm), Some(source), true) = (&weights.v_norm, &spec.v_norm, has_keys) {
        ops.norm_heads(&mut s.v, norm, source.width)?;
    }
    Ok(())
}

/// Scores, pattern and Σ p·v of some heads; `norms` are those of [`value_norms`](super::value_norms::value_norms).
pub(super) fn attend<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    weights: &AttentionWeights<'_, O>,
    visibility: &Visibility,
    heads: Range<usize>,
    (norms, sink): (Option<&[Vec<f32>]>, Option<&dyn BlockSink>),
    s: &mut AttentionScratch<O>,
) -> Result<Vec<HeadSummary>> {
    if let Some(copies) = context.copies {
        attend_copies(context, spec, weights, (visibility, heads), copies, s)?;
        return Ok(Vec::new());
    }
    let repeats = (!spec.is_cross)
        .then(|| Repeats::of_real(&context.sequence.tokens, context.sequence.real.as_deref()));
    let shared = context.bucket_values.as_deref();
    let globals = global_keys(context, s, 0)?;
    let run = Run {
        spec,
        repeats: repeats.as_ref(),
        value_norms: norms,
        visibility,
        heads,
        sinks: weights.sinks.as_deref(),
        bucket_values: weights.bucket_values.as_deref().or(shared),
        relative: weights.relative.as_ref(),
        positions: &context.sequence.positions,
        globals: globals.as_ref(),
        sink,
        kept: s.past.as_ref().and_then(KeysAndValues::packed),
        pace: context.pace,
    };
    context.ops.attend(&run, &s.q, &s.k, &s.v, &mut s.z) // [position, n_heads · d_value]
}

/// What all heads together add.
fn output<O: Ops>(
    context: &BlockContext<'_, O>,
    (n_heads, difference): (usize, Option<Difference>),
    heads: Vec<HeadSummary>,
    o: &O::Linear<'_>,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    offer(ops, hooks, Hook::Z, &mut s.z)?;
    difference_of(ops, difference, n_heads, &mut s.z)?;
    let head_output_norms = match context.copies {
        None => ops.head_output_norms((&s.z, n_heads), o, n_heads, context.pace)?,
        Some(_) => Vec::new(),
    };
    ops.linear(&s.z, o, &mut s.out, context.pace)?; // [position, d_model]
    Ok(AttentionRun {
        heads,
        head_output_norms,
    })
}

/// What a feed-forward layer adds; experts read their own weights, and some of them the residual before the norm.
pub(super) fn feed_forward<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &FeedForward,
    weights: Option<&MlpWeights<'_, O>>,
    (from, resid): (&O::Buffer, &O::Buffer),
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    match (spec, weights) {
        (FeedForward::Dense(mlp), Some(weights)) => run_mlp(context, mlp, weights, from, s, to),
        (FeedForward::Dense(_), None) => Ok(()),
        (FeedForward::Experts(spec), _) => experts(context, spec, (from, resid), s, to),
        (FeedForward::None, _) => nothing(context.ops, from, to),
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
            if let Some(share) = spec.sparsity {
                cut_off(ops, share, &mut s.gate)?;
            }
            ops.activate(spec.activation, &mut s.gate)?;
            ops.multiply(&mut s.hidden, &s.gate)?;
        }
        (Some(gate), GateRule::Clamped { limit, alpha }) => {
            ops.linear(from, gate, &mut s.gate, pace)?; // [position, d_mlp]
            ops.clamped_gate(&mut s.hidden, &s.gate, limit, alpha)?;
        }
        (None, _) => match weights.learned {
            Some(learned) => curve(ops, learned, &mut s.hidden)?,
            None => ops.activate(spec.activation, &mut s.hidden)?,
        },
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
