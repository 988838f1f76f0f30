//! Sharing of keys and values between layers, through the rows passed from block to block.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{KvSharing, ProjectionSpec};

use super::rows::put_columns;
use super::scratch::AttentionScratch;

/// Writes keys and values into the columns that later layers read.
pub(super) fn share_keys<O: Ops>(
    ops: &O,
    spec: &ProjectionSpec,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let Some(KvSharing::Provides(first)) = spec.shared.as_deref() else {
        return Ok(());
    };
    let (k, v) = (ops.get(&s.k)?, ops.get(&s.v)?);
    let width = s.kept.len() / (k.values.len() / k.width.max(1)).max(1);
    put_columns(&mut s.kept, width, *first, &k.values, k.width);
    put_columns(&mut s.kept, width, first + k.width, &v.values, v.width);
    Ok(())
}

/// Fills keys and values with those that an earlier layer left.
pub(super) fn reuse_keys<O: Ops>(
    ops: &O,
    (attention, spec): (&AttentionSpec, &ProjectionSpec),
    (q, kept): (&O::Buffer, &[f32]),
    [k, v]: [&mut O::Buffer; 2],
) -> Result<()> {
    let Some(KvSharing::Reuses { column, .. }) = spec.shared.as_deref() else {
        return Ok(());
    };
    let n_rows = {
        let q = ops.get(q)?;
        q.values.len() / q.width.max(1)
    };
    let width = kept.len() / n_rows.max(1);
    let [n_k, n_v] = [attention.d_head, attention.d_value].map(|d| attention.n_kv_heads * d);
    ops.put(&columns(kept, width, *column, n_k), n_k, k)?;
    ops.put(&columns(kept, width, column + n_k, n_v), n_v, v)
}
