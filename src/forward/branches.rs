//! The branches of a block in order, one tensor step per line.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{AddedConvolution, BlockSpec, CrossSpec, Mixer};

use super::added_convolution::add_convolved;
use super::attend::{AttentionRun, output};
use super::block_weights::{BlockWeights, CrossWeights, MixerWeights};
use super::bottleneck::run_inside;
use super::conformer::{add_before, add_convolution, normed_behind};
use super::context::BlockContext;
use super::copies::repeat;
use super::emit::{emit, offer, raw};
use super::feed_forward::feed_forward_of_all;
use super::first_rows::leave_out_firsts;
use super::grid_maps::pool_residual;
use super::heads::{Attending, run_heads};
use super::hook::{Hook, Hooks, NoHooks};
use super::hyper;
use super::last_mixer::run_with_last;
use super::merged::mix_merged;
use super::mixing::Mixed;
use super::narrow::add_narrow;
use super::norm_gate::open_norm;
use super::scratch::{AttentionScratch, Scratch};
use super::shortcut::shortcut;
use super::steps::{normed_in_place, scaled};
use super::sums::{weigh_added, weigh_resid};
use super::token_branch::end_block;

/// Attention results of a block, besides its output residual.
#[derive(Debug)]
pub struct BlockRun {
    /// `None` where another mixer takes the place of attention.
    pub attention: Option<AttentionRun>,
    pub cross: Option<AttentionRun>,
}

/// Runs the branches of a block on a residual, in place.
pub(super) fn run_branches<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    if let (Some(last), Some(of_last)) = (spec.last_mixer.as_deref(), &weights.last_mixer) {
        let (spec, weights) = ((spec, last), (weights, of_last));
        return run_with_last(context, spec, weights, resid, s, hooks);
    }
    if let Some(bottleneck) = spec.bottleneck.as_deref() {
        return run_inside(context, (spec, bottleneck), weights, resid, s, hooks);
    }
    if let Some(conformer) = spec.conformer.as_deref() {
        add_before(context, conformer, resid)?;
    }
    let (mut mixed, merged) = mix_merged(context, spec, weights, resid, &mut s.attention, hooks)?;
    if let Some(pooling) = spec.query_pooling() {
        pool_residual(context, (pooling, &spec.attn_pre), resid)?;
    }
    if spec.attn_pre.is_none() && (spec.adds_to_normed || spec.narrow.is_some()) {
        // Without a norm, what attention reads is the residual itself.
        context.ops.copy(resid, &mut s.attention.normed)?;
    }
    let (copies, scratch) = (hooks.spreads(), &mut s.attention);
    let spread = spread_mixed(context, spec, copies, &mut mixed, resid, scratch)?;
    let context = spread.as_ref().unwrap_or(context);
    let attention = attention_output(context, spec, weights, mixed, s, hooks)?;
    add_attention(context, spec, weights, resid, s)?;
    let module = spec.conformer.as_deref();
    if let Some(module) = module.and_then(|of| of.convolution.as_ref()) {
        add_convolution(context, module, resid)?;
    }
    let cross = match (spec.cross_apart(), &weights.cross) {
        (None, _) => merged,
        (Some(spec), Some(weights)) => Some(run_cross(context, spec, weights, resid, s, hooks)?),
        _ => None,
    };
    feed_forward_output(context, spec, weights, resid, s, hooks)?;
    add_feed_forward(context, spec, weights, resid, s)?;
    if let Some(conformer) = spec.conformer.as_deref() {
        normed_behind(context, &conformer.last, resid)?;
    }
    // With several residual streams, the per-token branch is added to the other streams, not to this one.
    let has_streams = spec.row.as_ref().is_some_and(|row| row.streams.is_some());
    if !has_streams {
        let end = (spec.by_token.as_deref(), spec.resid_scale.as_ref());
        end_block(context, end, &context.tokens(), resid)?;
    }
    Ok(BlockRun { attention, cross })
}

/// Repeats, once per copy of the sequence, what the rest of the block reads, and gives the context of the copies; `None` if the block
/// goes on with one.
pub(super) fn spread_mixed<'a, O: Ops>(
    context: &BlockContext<'a, O>,
    spec: &BlockSpec,
    copies: Option<usize>,
    mixed: &mut Mixed<O>,
    resid: &mut O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<Option<BlockContext<'a, O>>> {
    let Some(copies) = copies else {
        return Ok(None);
    };
    let ops = context.ops;
    let output = if mixed.heads.is_some() {
        &mut s.z
    } else {
        &mut s.out
    };
    repeat(ops, output, copies)?;
    repeat(ops, resid, copies)?;
    s.kept = s.kept.repeat(copies);
    s.chosen = s.chosen.repeat(copies);
    if let Some(open) = &mut s.open {
        open.repeat(copies);
    }
    if let Some(parallel) = &mut mixed.parallel {
        repeat(ops, parallel, copies)?;
    }
    if spec.adds_to_normed || spec.narrow.is_some() {
        repeat(ops, &mut s.normed, copies)?;
    }
    Ok(Some(context.spread(copies)))
}

/// Computes what attention, or the mixer in its place, adds to the residual, in `s.attention.out`. // [position, d_model]
pub(super) fn attention_output<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    mixed: Mixed<O>,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<Option<AttentionRun>> {
    let (ops, norm) = (context.ops, weights.attn_out.as_ref());
    let attention = match (mixed.heads, &spec.mixer, &weights.mixer) {
        (Some(heads), Mixer::Attention(own), MixerWeights::Attention(weights, o)) => {
            let experts = own.projections.experts.as_deref();
            let about = (own.attention.n_heads, &**weights, experts);
            let ran = output(context, about, heads, o, &mut s.attention, hooks)?;
            leave_out_firsts(context, own.projections.firsts, &mut s.attention.out)?;
            Some(ran)
        }
        _ => None,
    };
    let out = &mut s.attention.out;
    if let Some(parallel) = &mixed.parallel {
        ops.add(out, parallel)?;
    }
    raw(ops, hooks, Hook::AttnOut, out)?;
    let memory = s.attention.past.as_mut().map(|past| &mut past.convolved[2]);
    add_convolved(context, convolutions(spec)[0], memory, out)?;
    normed_in_place(ops, norm, out, &mut s.spare)?;
    scaled(ops, spec.branch_scales[0], out)?;
    weigh_added(context, &spec.sums[0], out)?;
    offer(ops, hooks, Hook::AttnOut, out)?;
    Ok(attention)
}

/// The convolutions of what attention and feed-forward layer give, if there are any.
fn convolutions(spec: &BlockSpec) -> [Option<&AddedConvolution>; 2] {
    match spec.convolutions.as_deref() {
        Some([attention, mlp]) => [Some(attention), Some(mlp)],
        None => [None, None],
    }
}

/// Adds the output of attention to the residual, or to all streams. A parallel block adds it at its end.
pub(super) fn add_attention<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
) -> Result<()> {
    if hyper::between(context, spec, &mut s.attention, resid)? {
        return Ok(());
    }
    let (ops, of_attention) = (context.ops, &s.attention);
    if spec.adds_to_normed {
        ops.copy(&of_attention.normed, resid)?;
    }
    scaled(ops, spec.resid_factors[0], resid)?;
    weigh_resid(context, &spec.sums[0], resid)?;
    if spec.is_parallel {
        return Ok(());
    }
    ops.add(resid, &of_attention.out)?;
    if let Some(narrow) = spec.narrow.as_deref() {
        let factor = spec.branch_scales[0];
        add_narrow(narrow, context, &of_attention.normed, factor, resid)?;
    }
    normed_in_place(ops, weights.attn_post.as_ref(), resid, &mut s.spare)
}

/// Computes what the feed-forward layer adds to the residual, in `s.mlp_out`. // [position, d_model]
pub(super) fn feed_forward_output<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    let ops = context.ops;
    let input = match &weights.mlp_pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            open_norm(context, weights.mlp_pre_gate.as_ref(), &mut s.normed)?;
            &s.normed
        }
        None => resid,
    };
    let (layer, maps) = (&spec.feed_forward, weights.mlp.as_ref());
    feed_forward_of_all(
        context,
        layer,
        maps,
        (input, resid),
        &mut s.mlp,
        &mut s.mlp_out,
    )?;
    let (read, kept) = ((input, resid), &mut s.attention.kept);
    shortcut(context, spec, read, kept, &mut s.mlp, &mut s.mlp_out)?;
    raw(ops, hooks, Hook::MlpOut, &s.mlp_out)?;
    let memory = s.attention.past.as_mut().map(|past| &mut past.convolved[3]);
    add_convolved(context, convolutions(spec)[1], memory, &mut s.mlp_out)?;
    normed_in_place(ops, weights.mlp_out.as_ref(), &mut s.mlp_out, &mut s.spare)?;
    scaled(ops, spec.branch_scales[1], &mut s.mlp_out)?;
    weigh_added(context, &spec.sums[1], &mut s.mlp_out)?;
    offer(ops, hooks, Hook::MlpOut, &mut s.mlp_out)
}

/// Adds the output of the feed-forward layer to the residual, and in a parallel block that of attention.
pub(super) fn add_feed_forward<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
) -> Result<()> {
    let ops = context.ops;
    if hyper::behind(context, spec, (&s.mlp_out, &mut s.attention), resid)? {
        return Ok(());
    }
    if spec.adds_to_normed && weights.mlp_pre.is_some() {
        ops.copy(&s.normed, resid)?;
    }
    scaled(ops, spec.resid_factors[1], resid)?;
    weigh_resid(context, &spec.sums[1], resid)?;
    if spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
    }
    ops.add(resid, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_post.as_ref(), resid, &mut s.spare)
}

/// Runs cross-attention and adds its output to the residual.
fn run_cross<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &CrossSpec,
    weights: &CrossWeights<'_, O>,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    let mut none = NoHooks;
    let hooks: &mut dyn Hooks = match hooks.cross() {
        Some(hooks) => hooks,
        None => &mut none,
    };
    // A parallel block still needs the output of self-attention, so cross-attention gets its own buffers.
    let mut s = AttentionScratch {
        past: scratch.cross_past.take(),
        ..AttentionScratch::default()
    };
    offer(ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]
    let attending = Attending {
        attention: &spec.attention,
        projections: &spec.projections,
        exceptions: &spec.exceptions,
        pre: &spec.pre,
        weights: &weights.attention,
        o: &weights.o,
    };
    let heads = run_heads(context, attending, resid, &mut s, hooks)?;
    let about = (spec.attention.n_heads, &weights.attention, None);
    let attention = output(context, about, heads, &weights.o, &mut s, hooks)?;
    raw(ops, hooks, Hook::AttnOut, &s.out)?;
    normed_in_place(ops, weights.out.as_ref(), &mut s.out, &mut scratch.spare)?;
    offer(ops, hooks, Hook::AttnOut, &mut s.out)?; // [position, d_model]
    ops.add(resid, &s.out)?;
    normed_in_place(ops, weights.post.as_ref(), resid, &mut scratch.spare)?;
    emit(ops, hooks, Hook::ResidPost, resid)?;
    scratch.cross_past = s.past;
    Ok(attention)
}
