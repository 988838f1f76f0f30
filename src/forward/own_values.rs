//! What some attentions do beside weighing values: rows by token that are added to them, and the value of the query's own position,
//! which is taken out of what a head gives; and a sum of the residual and what its row keeps, which they read.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::dot_f32 as dot;
use attnscope_compute::ops::Ops;
use attnscope_spec::TableSource;

use super::context::BlockContext;

/// The weighed sum of the residual and what its row keeps. // resid: [row, d_model]; kept: [row, d_model] → [row, d_model]
pub(super) fn sum_with_kept<O: Ops>(
    context: &BlockContext<'_, O>,
    weights: &str,
    resid: &O::Buffer,
    kept: &[f32],
) -> Result<O::Buffer> {
    let weights = context.shelf().vector(weights, 2)?;
    let host = context.ops.get(resid)?;
    let pairs = host.values.iter().zip(kept);
    let sum = pairs.map(|(own, kept)| weights[0] * own + weights[1] * kept);
    let mut to = O::Buffer::default();
    context.ops.put_own(sum.collect(), host.width, &mut to)?;
    Ok(to)
}

/// Adds to the values of each token its row of a table. // v: [token, n_kv_heads · d_value]
pub(super) fn add_rows<O: Ops>(
    context: &BlockContext<'_, O>,
    table: &TableSource,
    v: &mut O::Buffer,
) -> Result<()> {
    let shape = [table.n_rows, table.width];
    let stored = context.tensors.expect(&table.tensor, &shape)?;
    let host = context.ops.get(v)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    let tokens = context.tokens();
    for (row, token) in values.chunks_mut(width.max(1)).zip(tokens.iter()) {
        let at = *token as usize;
        if at >= table.n_rows {
            let problem = format!(
                "row {at} of {} does not exist in {}",
                table.n_rows, table.tensor
            );
            return Err(Error::Prompt(problem));
        }
        let added = stored.widen_rows(at..at + 1)?;
        row.iter_mut().zip(&*added).for_each(|(v, by)| *v += by);
    }
    context.ops.put_own(values, width, v)
}

/// Takes out of each head's output a share of its part along the value of the query's own position.
///
/// // v: [key, n_kv_heads · d_value], whose last rows are those of the queries; z: [query, n_heads · d_value]
pub(super) fn take_out_own<O: Ops>(
    context: &BlockContext<'_, O>,
    (attention, shares): (&AttentionSpec, &str),
    v: &O::Buffer,
    z: &mut O::Buffer,
) -> Result<()> {
    /// A shorter value counts as one of this length, as in the library.
    const SHORTEST: f32 = 1e-12;
    let (n_heads, width) = (attention.n_heads, attention.d_value);
    let shares = context.shelf().vector(shares, n_heads)?;
    let values = context.ops.get(v)?;
    let host = context.ops.get(z)?;
    let (z_width, mut heads) = (host.width, host.values.into_owned());
    let n_queries = heads.len() / z_width.max(1);
    let n_before = (values.values.len() / values.width.max(1)).saturating_sub(n_queries);
    let own_rows = values.values.chunks(values.width.max(1)).skip(n_before);
    for (row, own) in heads.chunks_mut(z_width.max(1)).zip(own_rows) {
        for (head_idx, head) in row.chunks_mut(width.max(1)).enumerate() {
            let own = &own[attention.kv_head_of(head_idx) * width..][..width];
            let length = dot(own, own).sqrt().max(SHORTEST);
            let share = shares[head_idx].tanh() * dot(head, own) / (length * length);
            head.iter_mut().zip(own).for_each(|(z, v)| *z -= share * v);
        }
    }
    context.ops.put_own(heads, z_width, z)
}
