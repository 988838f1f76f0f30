//! Merged attention: one softmax over an encoder's tokens and the block's own. Each of the two grids runs by itself, beside
//! log Σ exp(score) of the other.

use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, CrossSpec, SelfSpec};

use super::attend::{AttentionRun, output};
use super::block_weights::{AttentionWeights, BlockWeights, CrossWeights, MixerWeights};
use super::context::BlockContext;
use super::emit::{emit, offer, raw};
use super::heads::{Attending, log_sums, run_projected};
use super::hook::{Hook, Hooks, NoHooks};
use super::mixing::{Mixed, mix};
use super::project::project;
use super::scratch::AttentionScratch;

/// Runs the part of a block that mixes tokens, with the attention that shares the softmax of its own, if there is one.
pub(super) fn mix_merged<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<(Mixed<O>, Option<AttentionRun>)> {
    let (Some(cross), Some(own)) = (spec.merged(), spec.own()) else {
        return Ok((mix(context, spec, weights, resid, s, hooks)?, None));
    };
    let (MixerWeights::Attention(of_own, o), Some(of_cross)) = (&weights.mixer, &weights.cross)
    else {
        return Ok((mix(context, spec, weights, resid, s, hooks)?, None));
    };
    let both = Both {
        own: Attending {
            attention: &own.attention,
            projections: &own.projections,
            exceptions: &own.exceptions,
            pre: &spec.attn_pre,
            weights: of_own,
            o,
        },
        cross: across(cross, of_cross),
        shares: sums_keys(own, cross),
    };
    match context.copies {
        None => both.run(context, resid, s, hooks),
        Some(copies) => both.run_copies(context, copies, resid, s),
    }
}

/// log Σ exp(score) of what the rows of a block's own attention see besides its own tokens; empty if nothing. // [query, head]
pub(super) fn beside_own<O: Ops>(
    context: &BlockContext<'_, O>,
    block: &BlockSpec,
    resid: &O::Buffer,
) -> Result<Vec<f32>> {
    let (Some(cross), Some(own)) = (block.merged(), block.own()) else {
        return Ok(Vec::new());
    };
    if !sums_keys(own, cross) {
        return Ok(Vec::new());
    }
    let shelf = context.shelf();
    let n_heads = cross.attention.n_heads;
    let weights = CrossWeights {
        attention: AttentionWeights::read(shelf, &cross.pre, &cross.projections, n_heads)?,
        o: shelf.linear(&cross.projections.o)?,
        out: None,
        post: None,
    };
    let of_cross = across(cross, &weights);
    let mut s = AttentionScratch::default();
    project_for(context, &of_cross, resid, &mut s, &mut NoHooks)?;
    log_sums(context, &of_cross, resid, &mut s)
}

/// The attention to an encoder's tokens.
fn across<'s, 'w, O: Ops>(
    spec: &'s CrossSpec,
    weights: &'s CrossWeights<'w, O>,
) -> Attending<'s, 'w, O> {
    Attending {
        attention: &spec.attention,
        projections: &spec.projections,
        exceptions: &spec.exceptions,
        pre: &spec.pre,
        weights: &weights.attention,
        o: &weights.o,
    }
}

fn project_for<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    let (attention, projections) = (of.attention, of.projections);
    project(context, attention, projections, of.weights, resid, s, hooks)
}

/// Whether both softmaxes run over keys. What a what-if normalises otherwise, shares nothing.
fn sums_keys(own: &SelfSpec, cross: &CrossSpec) -> bool {
    let of_own = own.exceptions.variants.iter().map(|one| &one.attention);
    let of_cross = cross.exceptions.variants.iter().map(|one| &one.attention);
    let both = [&own.attention, &cross.attention].into_iter();
    let mut all = both.chain(of_own).chain(of_cross);
    all.all(|attention| attention.softmax_axis == SoftmaxAxis::Keys)
}

/// A block's own attention, and that to the encoder's tokens.
struct Both<'s, 'w, O: Ops> {
    own: Attending<'s, 'w, O>,
    cross: Attending<'s, 'w, O>,
    /// Whether one softmax sees both.
    shares: bool,
}

impl<O: Ops> Both<'_, '_, O> {
    fn run(
        &self,
        context: &BlockContext<'_, O>,
        resid: &O::Buffer,
        s: &mut AttentionScratch<O>,
        hooks: &mut dyn Hooks,
    ) -> Result<(Mixed<O>, Option<AttentionRun>)> {
        project_for(context, &self.own, resid, s, hooks)?;
        let mut of_cross = AttentionScratch::default();
        let ran = {
            let mut none = NoHooks;
            let hooks: &mut dyn Hooks = match hooks.cross() {
                Some(hooks) => hooks,
                None => &mut none,
            };
            self.run_cross(context, resid, [s, &mut of_cross], hooks)?
        };
        let heads = run_projected(context, &self.own, resid, s, hooks)?;
        s.beside.clear();
        let mixed = Mixed {
            heads: Some(heads),
            parallel: Some(of_cross.out),
        };
        Ok((mixed, Some(ran)))
    }

    /// Runs the attention to the encoder's tokens, after each side has been told what the other sees.
    fn run_cross(
        &self,
        context: &BlockContext<'_, O>,
        resid: &O::Buffer,
        [s, of_cross]: [&mut AttentionScratch<O>; 2],
        hooks: &mut dyn Hooks,
    ) -> Result<AttentionRun> {
        let ops = context.ops;
        emit(ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]
        project_for(context, &self.cross, resid, of_cross, hooks)?;
        if self.shares {
            let beside_cross = log_sums(context, &self.own, resid, s)?;
            s.beside = log_sums(context, &self.cross, resid, of_cross)?;
            of_cross.beside = beside_cross;
        }
        let heads = run_projected(context, &self.cross, resid, of_cross, hooks)?;
        let about = (self.cross.attention.n_heads, self.cross.weights, None);
        let ran = output(context, about, heads, self.cross.o, of_cross, hooks)?;
        raw(ops, hooks, Hook::AttnOut, &of_cross.out)?;
        offer(ops, hooks, Hook::AttnOut, &mut of_cross.out)?; // [position, d_model]
        // The residual gets the sum of both sides, behind which there is that of the block alone.
        hooks.back();
        Ok(ran)
    }

    /// Runs several copies of a sequence, one after another.
    fn run_copies(
        &self,
        context: &BlockContext<'_, O>,
        copies: usize,
        resid: &O::Buffer,
        s: &mut AttentionScratch<O>,
    ) -> Result<(Mixed<O>, Option<AttentionRun>)> {
        let ops = context.ops;
        let alone = BlockContext {
            copies: None,
            known: None,
            ..context.over(context.sequence)
        };
        let host = ops.get(resid)?;
        let n_values = context.sequence.len() * host.width;
        let (mut z, mut parallel) = (O::Buffer::default(), O::Buffer::default());
        for copy_idx in 0..copies {
            let mut rows = O::Buffer::default();
            let values = &host.values[copy_idx * n_values..][..n_values];
            ops.put(values, host.width, &mut rows)?; // [position, d_model]
            let (mixed, _) = self.run(&alone, &rows, s, &mut NoHooks)?;
            ops.append(&mut z, &s.z)?;
            if let Some(out) = &mixed.parallel {
                ops.append(&mut parallel, out)?;
            }
        }
        s.z = z; // [copy · position, n_heads · d_value]
        let mixed = Mixed {
            heads: Some(Vec::new()),
            parallel: Some(parallel),
        };
        Ok((mixed, None))
    }
}
