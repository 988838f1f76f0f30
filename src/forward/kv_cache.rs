//! Rounds keys and values as the format of a KV cache does. Only what-ifs set such a format.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::ProjectionSpec;

/// Rounds keys that are ready for the scores. A cache of latent vectors holds only the part of a key that all heads share.
pub(super) fn store_keys<O: Ops>(
    ops: &O,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    k: &mut O::Buffer,
) -> Result<()> {
    if attention.cache.is_none() {
        return Ok(());
    }
    let host = ops.get(k)?;
    let (width, mut keys) = (host.width, host.values.into_owned());
    round_keys(attention, spec, &mut keys);
    ops.put_own(keys, width, k)
}

/// Rounds values. Where the cache holds latent vectors, values are made of rounded ones and are not rounded themselves.
pub(super) fn store_values<O: Ops>(
    ops: &O,
    attention: &AttentionSpec,
    spec: &ProjectionSpec,
    v: &mut O::Buffer,
) -> Result<()> {
    if attention.cache.is_none() || spec.latent.is_some() {
        return Ok(());
    }
    let host = ops.get(v)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    round_values(attention, spec, &mut values);
    ops.put_own(values, width, v)
}

/// Rounds the normalised latent vectors that keys and values are projected from.
pub(super) fn store_latents<O: Ops>(
    ops: &O,
    attention: &AttentionSpec,
    normed_latent: &mut O::Buffer,
) -> Result<()> {
    let Some(format) = attention.cache else {
        return Ok(());
    };
    let host = ops.get(normed_latent)?;
    let (width, mut latents) = (host.width, host.values.into_owned());
    format.round(&mut latents, width);
    ops.put_own(latents, width, normed_latent)
}

/// Rounds keys as [`store_keys`] does. // keys: [position, n_kv_heads · d_head]
pub(super) fn round_keys(attention: &AttentionSpec, spec: &ProjectionSpec, keys: &mut [f32]) {
    let Some(format) = attention.cache else {
        return;
    };
    let Some(latent) = &spec.latent else {
        return format.round(keys, attention.d_head);
    };
    let n_shared = latent
        .shared_key
        .as_ref()
        .map_or(0, |shared| shared.n_out());
    for key in keys.chunks_mut(attention.d_head.max(1)) {
        let n_own = key.len().saturating_sub(n_shared);
        format.round(&mut key[n_own..], n_shared.max(1));
    }
}

/// Rounds values as [`store_values`] does. // values: [position, n_kv_heads · d_value]
pub(super) fn round_values(attention: &AttentionSpec, spec: &ProjectionSpec, values: &mut [f32]) {
    if let (Some(format), None) = (attention.cache, &spec.latent) {
        format.round(values, attention.d_value);
    }
}
