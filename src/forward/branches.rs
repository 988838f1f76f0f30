//! The branches of a block in order, one tensor step per line.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, CrossSpec, Mixer};

use super::attend::{AttentionRun, output};
use super::block_weights::{BlockWeights, CrossWeights, MixerWeights};
use super::context::BlockContext;
use super::copies::repeat;
use super::emit::{emit, offer, raw};
use super::feed_forward::feed_forward_of_all;
use super::heads::{Attending, run_heads};
use super::hook::{Hook, Hooks, NoHooks};
use super::mixing::{Mixed, mix};
use super::narrow::add_narrow;
use super::scratch::{AttentionScratch, Scratch};
use super::steps::{normed_in_place, scaled};
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
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let (ops, s) = (context.ops, scratch);
    let Mixed {
        heads,
        mut parallel,
    } = mix(context, spec, weights, resid, &mut s.attention, hooks)?;
    let spread;
    let context = match hooks.spreads() {
        Some(copies) => {
            let mixed = match heads {
                Some(_) => &mut s.attention.z,
                None => &mut s.attention.out,
            };
            repeat(ops, mixed, copies)?;
            repeat(ops, resid, copies)?;
            if let Some(parallel) = &mut parallel {
                repeat(ops, parallel, copies)?;
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
    if let Some(parallel) = &parallel {
        ops.add(&mut s.attention.out, parallel)?;
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
            // A parallel block still needs the output of self-attention, so cross-attention gets its own buffers.
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
    // With several residual streams, the per-token branch is added to the other streams, not to this one.
    let has_streams = spec.row.as_ref().is_some_and(|row| row.streams.is_some());
    if !has_streams {
        let end = (spec.by_token.as_deref(), spec.resid_scale.as_ref());
        end_block(context, end, &context.tokens(), resid)?;
    }
    Ok(BlockRun { attention, cross })
}

/// Runs cross-attention and adds its output to the residual.
fn run_cross<O: Ops>(
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
