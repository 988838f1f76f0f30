//! The latent that keys and values are projected from, and the part of keys that all heads share: a layer's own, or an earlier layer's.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{LatentSharing, ProjectionSpec};

use super::block_weights::LatentWeights;
use super::context::BlockContext;
use super::rows::put_columns;
use super::steps::normed_in_place;

/// Buffers of latent attention that one layer may leave to another.
pub(super) struct LatentBuffers<'s, O: Ops> {
    /// The kept part of rows. // [row, n_kept]
    pub kept: &'s mut [f32],
    pub before_norm: &'s mut O::Buffer,
    /// [row, d_latent]
    pub normed: &'s mut O::Buffer,
    /// [row, shared]
    pub shared_key: &'s mut O::Buffer,
}

/// Fills the normed latent and the shared part of keys, which later layers may take.
pub(super) fn fill_latent<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ProjectionSpec,
    latent: &LatentWeights<'_, O>,
    from: &O::Buffer,
    s: LatentBuffers<'_, O>,
) -> Result<()> {
    let ops = context.ops;
    let Some(source) = spec.latent.as_deref() else {
        return Ok(());
    };
    let n_latent = source.kv.n_out();
    let n_shared = source.shared_key.as_ref().map_or(0, |map| map.n_out());
    let n_rows = {
        let host = ops.get(from)?;
        host.values.len() / host.width.max(1)
    };
    let width = s.kept.len() / n_rows.max(1);
    if let Some(LatentSharing::Takes { column, .. }) = source.shared {
        let taken = |first, n| columns(s.kept, width, first, n);
        ops.put_own(taken(column, n_latent), n_latent, s.normed)?;
        if n_shared > 0 {
            let key = taken(column + n_latent, n_shared);
            ops.put_own(key, n_shared, s.shared_key)?;
        }
        return Ok(());
    }
    ops.linear(from, &latent.kv, s.before_norm, context.pace)?; // [position, d_latent]
    ops.norm(s.before_norm, &latent.kv_norm, s.normed)?;
    if let Some(shared) = &latent.shared_key {
        ops.linear(from, shared, s.shared_key, context.pace)?; // [position, shared]
        let norm = latent.shared_key_norm.as_ref();
        normed_in_place(ops, norm, s.shared_key, s.before_norm)?;
    }
    if let Some(LatentSharing::Leaves { column }) = source.shared {
        let values = ops.get(s.normed)?.values.into_owned();
        put_columns(s.kept, width, column, &values, n_latent);
        if n_shared > 0 {
            let values = ops.get(s.shared_key)?.values.into_owned();
            put_columns(s.kept, width, column + n_latent, &values, n_shared);
        }
    }
    Ok(())
}
