//! A block whose branches add to a narrower residual than the stack's.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, Bottleneck, NormedMap};

use super::block_weights::{BlockWeights, MlpWeights};
use super::branches::{
    BlockRun, add_attention, add_feed_forward, attention_output, feed_forward_output, spread_mixed,
};
use super::context::BlockContext;
use super::hook::Hooks;
use super::mixing::mix;
use super::mlp::run_mlp;
use super::scratch::Scratch;
use super::steps::normed_in_place;

/// norm(map x). // from: [position, wide] → [position, narrow]
///
/// # Errors
/// When a tensor differs from its spec, the pace stops it, or the device fails.
pub(super) fn narrowed<O: Ops>(
    context: &BlockContext<'_, O>,
    by: &NormedMap,
    from: &O::Buffer,
) -> Result<O::Buffer> {
    let (ops, shelf) = (context.ops, context.shelf());
    let (mut mapped, mut normed) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(from, &shelf.linear(&by.map)?, &mut mapped, context.pace)?;
    ops.norm(&mapped, &shelf.norm(&by.norm)?, &mut normed)?;
    Ok(normed)
}

/// What heads read in such a block; `None` if it is the stack's residual.
///
/// # Errors
/// As for [`narrowed`].
pub(super) fn read_inside<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    resid: &O::Buffer,
) -> Result<Option<O::Buffer>> {
    let bottleneck = spec.bottleneck.as_deref();
    let inside = bottleneck.filter(|bottleneck| bottleneck.heads_read_inside);
    let inside = inside.map(|bottleneck| narrowed(context, &bottleneck.into, resid));
    inside.transpose()
}

/// Runs the branches of such a block on a residual, in place. // resid: [position, d_model]
pub(super) fn run_inside<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, bottleneck): (&BlockSpec, &Bottleneck),
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let read = read_inside(context, spec, resid)?;
    let read = read.as_ref().unwrap_or(resid);
    let mut mixed = mix(context, spec, weights, read, &mut s.attention, hooks)?;
    let (copies, scratch) = (hooks.spreads(), &mut s.attention);
    let spread = spread_mixed(context, spec, copies, &mut mixed, resid, scratch)?;
    let context = spread.as_ref().unwrap_or(context);
    let (ops, shelf) = (context.ops, context.shelf());
    let mut inside = narrowed(context, &bottleneck.into, resid)?; // [position, narrow]
    let attention = attention_output(context, spec, weights, mixed, s, hooks)?;
    add_attention(context, spec, weights, &mut inside, s)?;
    let mut added = O::Buffer::default();
    for (mlp, norm) in &bottleneck.layers {
        let weights = MlpWeights::read(shelf, mlp)?;
        run_mlp(context, mlp, &weights, &inside, &mut s.mlp, &mut added)?;
        ops.add(&mut inside, &added)?;
        normed_in_place(ops, Some(&shelf.norm(norm)?), &mut inside, &mut s.spare)?;
    }
    feed_forward_output(context, spec, weights, &inside, s, hooks)?;
    add_feed_forward(context, spec, weights, &mut inside, s)?;
    let out = shelf.linear(&bottleneck.out)?;
    ops.linear(&inside, &out, &mut added, context.pace)?; // [position, d_model]
    ops.add(resid, &added)?;
    let norm = shelf.norm(&bottleneck.out_norm)?;
    normed_in_place(ops, Some(&norm), resid, &mut s.spare)?;
    Ok(BlockRun {
        attention,
        cross: None,
    })
}
