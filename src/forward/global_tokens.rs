//! Global tokens of an attention, which have query, key and value projections of their own.

use attnscope_compute::attention::{AttentionSpec, GlobalKeys};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::block_weights::AttentionWeights;
use super::context::BlockContext;
use super::hook::Hooks;
use super::scratch::{AttentionScratch, GlobalBuffers};

/// Replaces the queries of global tokens with those of their own projection, and makes the keys and values that they attend to.
/// // attn_in: [position, d_model]
pub(super) fn project_globals<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    weights: &AttentionWeights<'_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    s.global = None;
    let (Some(globals), Some(maps)) = (spec.globals, &weights.global) else {
        return Ok(());
    };
    let ops = context.ops;
    let attn_in = match &weights.pre {
        Some(_) => &s.normed,
        None => resid,
    };
    let [mut q, mut k, mut v]: [O::Buffer; 3] = Default::default();
    ops.linear(attn_in, &maps.q, &mut q, context.pace)?;
    ops.linear(attn_in, &maps.k, &mut k, context.pace)?;
    ops.linear(attn_in, &maps.v, &mut v, context.pace)?;
    // Each copy of the sequence has its own global tokens, at the same positions.
    let is_global = context.sequence.global(globals);
    let (of_all, of_globals) = (ops.get(&s.q)?, ops.get(&q)?);
    let (width, mut queries) = (of_all.width, of_all.values.into_owned());
    let rows = queries.chunks_mut(width.max(1));
    let rows = rows.zip(of_globals.values.chunks(width.max(1)));
    for ((row, global), is_global) in rows.zip(is_global.iter().cycle()) {
        if *is_global {
            row.copy_from_slice(global);
        }
    }
    ops.put_own(queries, width, &mut s.q)?;
    s.global = Some(GlobalBuffers {
        tokens: is_global,
        k,
        v,
        value_norms: None,
    });
    Ok(())
}

/// Computes norms of the head outputs of global tokens' values; unknown where copies of a sequence run.
pub(super) fn measure_globals<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    o: &O::Linear<'_>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    if let (Some(global), None) = (&mut s.global, context.copies) {
        let values = (&global.v, spec.n_kv_heads);
        let norms = context
            .ops
            .head_output_norms(values, o, spec.n_heads, context.pace)?;
        global.value_norms = Some(norms);
    }
    Ok(())
}

/// Returns the keys and values that global tokens attend to, in one of several copies of the sequence.
pub(super) fn global_keys<O: Ops>(
    context: &BlockContext<'_, O>,
    s: &AttentionScratch<O>,
    copy_idx: usize,
) -> Result<Option<GlobalKeys>> {
    let Some(global) = &s.global else {
        return Ok(None);
    };
    let part = |buffer: &O::Buffer| -> Result<Vec<f32>> {
        let host = context.ops.get(buffer)?;
        let n = context.sequence.len() * host.width;
        Ok(host.values[copy_idx * n..(copy_idx + 1) * n].to_vec())
    };
    Ok(Some(GlobalKeys {
        tokens: global.tokens.clone(),
        k: part(&global.k)?,
        v: part(&global.v)?,
        value_norms: global.value_norms.clone(),
    }))
}

/// Passes the keys and values of global tokens to hooks that recompute an attention.
pub(super) fn tell_globals<O: Ops>(
    context: &BlockContext<'_, O>,
    s: &AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<()> {
    if hooks.wants_globals()
        && let Some(keys) = global_keys(context, s, 0)?
    {
        hooks.globals(&keys);
    }
    Ok(())
}
