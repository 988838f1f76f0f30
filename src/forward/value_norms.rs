//! Norms of the head outputs of each key's value.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::ProjectionSpec;

use super::context::BlockContext;
use super::emit::emit_host;
use super::hook::{Hook, Hooks};
use super::scratch::AttentionScratch;

/// Passes ‖v W_O‖ of every head and key to hooks.
pub(super) fn tell_norms(norms: Option<&[Vec<f32>]>, hooks: &mut dyn Hooks) -> Result<()> {
    let Some(norms) = norms else {
        return Ok(());
    };
    let n_keys = norms.first().map_or(0, Vec::len);
    emit_host(hooks, Hook::ValueNorms, &norms.concat(), n_keys)
}

/// Computes ‖v W_O‖ of every head and key from projected values; unknown where copies of a sequence run, or where a norm
/// stands between them and W_O, a head's own value is taken out, or class tokens get something else. // [head][key]
pub(super) fn value_norms<O: Ops>(
    context: &BlockContext<'_, O>,
    (attention, projections): (&AttentionSpec, &ProjectionSpec),
    o: &O::Linear<'_>,
    s: &AttentionScratch<O>,
) -> Result<Option<Vec<Vec<f32>>>> {
    if context.copies.is_some() || !projections.weighs_values() {
        return Ok(None);
    }
    let values = (&s.v, attention.n_kv_heads);
    let norms = context
        .ops
        .head_output_norms(values, o, attention.n_heads, context.pace)?;
    Ok(Some(norms))
}
