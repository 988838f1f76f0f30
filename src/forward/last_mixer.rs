//! A block whose mixer comes last: attention and feed-forward layer run aside, and the mixer reads what they give beside the residual.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockRow, BlockSpec, LastMixer};

use super::block_weights::{BlockWeights, LastMixerWeights};
use super::branches::{BlockRun, attention_output, feed_forward_output, spread_mixed};
use super::context::BlockContext;
use super::hook::Hooks;
use super::mixer::run_mixer;
use super::mixing::mix;
use super::scratch::Scratch;

/// What attention reads where a row keeps more beside the residual: both, side by side; `None` where it reads the residual alone.
/// // resid: [row, d_model]; kept: [row, n_kept]
pub(super) fn beside<O: Ops>(
    ops: &O,
    row: Option<&BlockRow>,
    resid: &O::Buffer,
    kept: &[f32],
) -> Result<Option<O::Buffer>> {
    let Some(row) = row.filter(|row| row.beside) else {
        return Ok(None);
    };
    let host = ops.get(resid)?;
    let width = row.d_model + row.n_kept;
    let mut both = Vec::with_capacity(host.values.len() / row.d_model.max(1) * width);
    let rows = host.values.chunks(row.d_model.max(1));
    for (resid, kept) in rows.zip(kept.chunks(row.n_kept.max(1))) {
        both.extend_from_slice(resid);
        both.extend_from_slice(kept);
    }
    let mut to = O::Buffer::default();
    ops.put_own(both, width, &mut to)?;
    Ok(Some(to))
}

/// Runs the branches of such a block on a residual, in place.
pub(super) fn run_with_last<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, last): (&BlockSpec, &LastMixer),
    (weights, of_last): (&BlockWeights<'_, O>, &LastMixerWeights<'_, O>),
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let ops = context.ops;
    let wide = beside(ops, spec.row.as_deref(), resid, &s.attention.kept)?;
    let read = wide.as_ref().unwrap_or(resid);
    let mut mixed = mix(context, spec, weights, read, &mut s.attention, hooks)?;
    let (copies, scratch) = (hooks.spreads(), &mut s.attention);
    let spread = spread_mixed(context, spec, copies, &mut mixed, resid, scratch)?;
    let context = spread.as_ref().unwrap_or(context);
    let attention = attention_output(context, spec, weights, mixed, s, hooks)?;
    let mut aside = O::Buffer::default();
    ops.copy(&s.attention.out, &mut aside)?; // [position, d_model]
    feed_forward_output(context, spec, weights, &aside, s, hooks)?;
    ops.linear(&s.mlp_out, &of_last.map, &mut aside, context.pace)?; // [position, d_model]
    ops.add(&mut aside, resid)?;
    ops.norm(&aside, &of_last.pre, &mut s.normed)?;
    let memory = s.attention.past.as_mut().map(|past| &mut past.mixed);
    run_mixer(
        context,
        &last.mixer,
        &of_last.mixer,
        &s.normed,
        memory,
        &mut aside,
    )?;
    ops.add(resid, &aside)?;
    Ok(BlockRun {
        attention,
        cross: None,
    })
}
