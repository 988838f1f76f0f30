//! The indexer of sparse attention: projects its queries, keys and weights, and picks the keys that attention sees.

use std::borrow::Cow;

use attnscope_compute::attention::{
    AttentionSpec, IndexInput, KeyRank, PickedKeys, RopeSpec, RopeTable, Visibility,
};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{IndexMaps, IndexSource, IndexerSpec, PoolMaps, ProjectionSpec};

use super::context::BlockContext;
use super::growth::grow_by_head;
use super::rows::put_columns;
use super::scratch::AttentionScratch;
use super::steps::nothing;
use super::weights::WeightReader;

/// Weights of an indexer.
pub struct IndexWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    k: O::Linear<'a>,
    weights: Option<O::Linear<'a>>,
    q_pre: Option<O::Norm<'a>>,
    q_growth: Option<[Cow<'a, [f32]>; 2]>,
    q_norm: Option<O::Norm<'a>>,
    k_norm: Option<O::Norm<'a>>,
    /// The map that shares in pools are made of.
    shares: Option<O::Linear<'a>>,
}

impl<'a, O: Ops> IndexWeights<'a, O> {
    /// Reads the weights; `None` if there is no indexer, or if it uses the values of an earlier layer.
    ///
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &ProjectionSpec) -> Result<Option<Self>> {
        let Some(maps) = own_maps(spec) else {
            return Ok(None);
        };
        let weights = maps.weights.as_ref().map(|map| shelf.linear(map));
        Ok(Some(Self {
            q: shelf.linear(&maps.q)?,
            k: shelf.linear(&maps.k)?,
            weights: weights.transpose()?,
            q_pre: shelf.optional_norm(&maps.q_pre)?,
            q_growth: shelf.growth(maps.q_growth.as_deref())?,
            q_norm: shelf.optional_norm(&maps.q_norm)?,
            k_norm: shelf.optional_norm(&maps.k_norm)?,
            shares: match maps.pools.as_ref().and_then(PoolMaps::shares) {
                Some(shares) => Some(shelf.linear(shares)?),
                None => None,
            },
        }))
    }
}

/// The maps of an indexer that computes values of its own.
fn own_maps(spec: &ProjectionSpec) -> Option<&IndexMaps> {
    match &spec.indexer.as_deref()?.source {
        IndexSource::Own { maps, .. } => Some(maps),
        IndexSource::Reuses { .. } => None,
    }
}

/// Buffers of an indexer.
pub(super) struct IndexBuffers<O: Ops> {
    /// Index heads, and their width; 0 without an indexer.
    n_heads: usize,
    d_head: usize,
    d_key: usize,
    is_weighted: bool,
    /// [position, n_heads · d_head]
    q: O::Buffer,
    /// [key, d_key]
    pub k: O::Buffer,
    /// [position, d_head]
    shares: O::Buffer,
    /// [position, n_heads]
    weights: O::Buffer,
    /// What makes keys of pools, where they are means.
    mean: Option<MeanPools>,
}

impl<O: Ops> Default for IndexBuffers<O> {
    fn default() -> Self {
        Self {
            n_heads: 0,
            d_head: 0,
            d_key: 0,
            is_weighted: false,
            q: O::Buffer::default(),
            k: O::Buffer::default(),
            shares: O::Buffer::default(),
            weights: O::Buffer::default(),
            mean: None,
        }
    }
}

/// Projects the queries of an indexer, from the latent of queries where there is one. // from: [position, n_in]
pub(super) fn index_queries<O: Ops>(
    context: &BlockContext<'_, O>,
    weights: Option<&IndexWeights<'_, O>>,
    from: &O::Buffer,
    to: &mut IndexBuffers<O>,
) -> Result<()> {
    let Some(weights) = weights else {
        return Ok(());
    };
    let ops = context.ops;
    let mut normed = O::Buffer::default();
    let from = match &weights.q_pre {
        Some(norm) => {
            ops.norm(from, norm, &mut normed)?;
            &normed
        }
        None => from,
    };
    ops.linear(from, &weights.q, &mut to.q, context.pace)
}

/// Projects the keys of an indexer, and the weights of its heads. // from: [position, d_model]
pub(super) fn index_keys<O: Ops>(
    context: &BlockContext<'_, O>,
    weights: Option<&IndexWeights<'_, O>>,
    from: &O::Buffer,
    to: &mut IndexBuffers<O>,
) -> Result<()> {
    let Some(weights) = weights else {
        return Ok(());
    };
    context
        .ops
        .linear(from, &weights.k, &mut to.k, context.pace)?;
    if let Some(shares) = &weights.shares {
        context
            .ops
            .linear(from, shares, &mut to.shares, context.pace)?;
    }
    match &weights.weights {
        Some(map) => context.ops.linear(from, map, &mut to.weights, context.pace),
        None => Ok(()),
    }
}

/// Applies the norms and positions of an indexer; shares its values with later layers, or takes those of an earlier one.
pub(super) fn finish_index<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ProjectionSpec,
    weights: Option<&IndexWeights<'_, O>>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let Some(indexer) = spec.indexer.as_deref() else {
        return Ok(());
    };
    let (ops, n_rows) = (context.ops, context.positions().len());
    let (index, kept) = (&mut s.index, &mut s.kept);
    index.n_heads = indexer.n_heads;
    index.d_head = indexer.d_head;
    index.d_key = indexer.d_key();
    index.is_weighted = indexer.is_weighted;
    if let (Some(maps), Some(weights)) = (own_maps(spec), weights) {
        // Of means of keys, norm and rope come behind the mean, once all keys of a pool are there.
        let is_mean = matches!(maps.pools, Some(PoolMaps::Mean { .. }));
        if let (Some(norm), Some(source)) = (&weights.q_norm, &maps.q_norm) {
            ops.norm_heads(&mut index.q, norm, source.width)?;
        }
        if let (Some(norm), Some(source), false) = (&weights.k_norm, &maps.k_norm, is_mean) {
            ops.norm_heads(&mut index.k, norm, source.width)?;
        }
        grow_by_head(context, weights.q_growth.as_ref(), &mut index.q)?;
        if let Some(rope) = &maps.rope {
            let table = RopeTable::new(rope, &context.positions());
            ops.rope(&mut index.q, &table, indexer.d_head)?;
            if !is_mean {
                ops.rope(&mut index.k, &table, indexer.d_head)?;
            }
        }
        index.mean = match &maps.pools {
            Some(PoolMaps::Mean { size }) => Some(MeanPools::read(context, maps, *size)?),
            Some(PoolMaps::Weighted { .. }) | None => None,
        };
        if let Some(pools) = &maps.pools {
            match pools {
                PoolMaps::Weighted { size, places, .. } => {
                    let at = (places.as_str(), *size);
                    add_places(context, at, indexer.d_head, &mut index.shares)?;
                }
                PoolMaps::Mean { .. } => nothing(ops, &index.k, &mut index.shares)?,
            }
            let mut both = O::Buffer::default();
            ops.join_heads(&index.k, &index.shares, 1, &mut both)?; // [position, 2 · d_head]
            index.k = both;
        }
        if indexer.is_weighted && maps.weights.is_none() {
            let n = indexer.n_heads;
            ops.put_own(vec![1.0; n_rows * n], n, &mut index.weights)?;
        }
    }
    let width = kept.len() / n_rows.max(1);
    match &indexer.source {
        IndexSource::Own {
            column: Some(column),
            ..
        } => {
            for (first, n, buffer) in index.parts(indexer, *column) {
                put_columns(kept, width, first, &ops.get(buffer)?.values, n);
            }
            Ok(())
        }
        IndexSource::Own { column: None, .. } => Ok(()),
        IndexSource::Reuses { column, .. } => {
            for (first, n, buffer) in index.parts(indexer, *column) {
                ops.put_own(columns(kept, width, first, n), n, buffer)?;
            }
            Ok(())
        }
    }
}

/// Adds the vector of each token's place in its pool; pools begin at the first token that is not padding. // shares: [row, d_head]
fn add_places<O: Ops>(
    context: &BlockContext<'_, O>,
    (places, size): (&str, usize),
    d_head: usize,
    shares: &mut O::Buffer,
) -> Result<()> {
    let stored = context.tensors.expect(places, &[size, d_head])?;
    let places = stored.widen()?;
    let real = context.sequence.real.as_deref();
    let first = real.and_then(|real| real.iter().position(|is_real| *is_real));
    let (first, n_past) = (first.unwrap_or(0), context.n_past);
    let n_new = context.sequence.len().saturating_sub(n_past).max(1);
    let mut values = context.ops.get(shares)?.values.into_owned();
    for (row_idx, row) in values.chunks_mut(d_head.max(1)).enumerate() {
        let token_idx = n_past + row_idx % n_new;
        let Some(idx) = token_idx.checked_sub(first) else {
            continue;
        };
        let place = idx % size;
        let place = &places[place * d_head..(place + 1) * d_head];
        row.iter_mut().zip(place).for_each(|(to, v)| *to += v);
    }
    context.ops.put_own(values, d_head, shares)
}

/// What makes the key of a pool of the mean of its keys.
struct MeanPools {
    size: usize,
    /// What multiplies the normed mean, and what is added to the mean square before. // [d_head]
    norm: Option<(Vec<f32>, f32)>,
    rope: Option<RopeSpec>,
}

impl MeanPools {
    fn read<O: Ops>(context: &BlockContext<'_, O>, maps: &IndexMaps, size: usize) -> Result<Self> {
        let norm = match maps.k_norm.as_ref().map(|norm| (norm, norm.gain.first())) {
            Some((norm, Some(gain))) => {
                let stored = context.shelf().vector(gain, norm.width)?;
                let one = if norm.adds_one { 1.0 } else { 0.0 };
                Some((stored.iter().map(|gain| one + gain).collect(), norm.eps))
            }
            _ => None,
        };
        Ok(Self {
            size,
            norm,
            rope: maps.rope.clone(),
        })
    }

    /// Writes the key of every whole pool in the place of each of its keys. // k: [key, 2 · d_head]
    fn apply<O: Ops>(
        &self,
        context: &BlockContext<'_, O>,
        (d_head, first): (usize, usize),
        k: &mut [f32],
    ) -> Result<()> {
        let (ops, width) = (context.ops, 2 * d_head);
        let of_pools = k.get_mut(first * width..).unwrap_or_default();
        let pools = of_pools.chunks_exact(self.size * width);
        let n = pools.len();
        let mut means = Vec::with_capacity(n * d_head);
        for pool in pools {
            let mean = |column: usize| {
                let sum: f32 = pool.iter().skip(column).step_by(width).sum();
                sum / self.size as f32
            };
            let mut key: Vec<f32> = (0..d_head).map(mean).collect();
            if let Some((gain, eps)) = &self.norm {
                let squares: f64 = key.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
                let by = (1.0 / (squares / d_head as f64 + f64::from(*eps)).sqrt()) as f32;
                let columns = key.iter_mut().zip(gain);
                columns.for_each(|(value, gain)| *value = *value * by * gain);
            }
            means.extend_from_slice(&key);
        }
        if let (Some(rope), true) = (&self.rope, n > 0) {
            let place = |nth: usize| context.sequence.positions[first + nth * self.size];
            let places: Vec<usize> = (0..n).map(place).collect();
            let mut turned = O::Buffer::default();
            ops.put_own(means, d_head, &mut turned)?;
            ops.rope(&mut turned, &RopeTable::new(rope, &places), d_head)?;
            means = ops.get(&turned)?.values.into_owned();
        }
        let pools = of_pools.chunks_exact_mut(self.size * width);
        for (pool, mean) in pools.zip(means.chunks(d_head)) {
            pool.chunks_mut(width)
                .for_each(|key| key[..d_head].copy_from_slice(mean));
        }
        Ok(())
    }
}

impl<O: Ops> IndexBuffers<O> {
    /// Takes the queries, keys and weights of an indexer of another kind.
    pub(super) fn set(&mut self, n_heads: usize, d_head: usize, [q, k, weights]: [O::Buffer; 3]) {
        *self = Self {
            n_heads,
            d_head,
            d_key: d_head,
            is_weighted: true,
            q,
            k,
            weights,
            ..Self::default()
        };
    }

    /// The buffers, and the columns of a row that keep each: the first, and how many.
    fn parts(
        &mut self,
        spec: &IndexerSpec,
        column: usize,
    ) -> impl Iterator<Item = (usize, usize, &mut O::Buffer)> {
        let (n_q, n_k) = (spec.n_heads * spec.d_head, spec.d_key());
        let weights = (column + n_q + n_k, spec.n_heads, &mut self.weights);
        let parts = [(column, n_q, &mut self.q), (column + n_q, n_k, &mut self.k)];
        let weights = spec.is_weighted.then_some(weights);
        parts.into_iter().chain(weights)
    }
}

/// Adds the keys that an indexer picks in one copy of the sequence, where one ranks the keys.
pub(super) fn with_picked<'v, O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    visibility: &'v Visibility,
    copy_idx: usize,
    s: &AttentionScratch<O>,
) -> Result<Cow<'v, Visibility>> {
    let top = match spec.top_keys {
        Some(top) if visibility.picked().is_none() => top,
        _ => return Ok(Cow::Borrowed(visibility)),
    };
    match top.by {
        KeyRank::Scores | KeyRank::Window(_) => return Ok(Cow::Borrowed(visibility)),
        KeyRank::Indexer(_) | KeyRank::Pools => {}
    }
    let (ops, index) = (context.ops, &s.index);
    let [q, k] = [&index.q, &index.k].map(|buffer| ops.get(buffer));
    let weights = index.is_weighted.then(|| ops.get(&index.weights));
    let (q, k, weights) = (q?, k?, weights.transpose()?);
    let n_queries = visibility.n_queries_to_run();
    let n_keys = match top.by {
        KeyRank::Pools => visibility.n_keys.saturating_sub(visibility.n_queries),
        _ => visibility.n_keys,
    };
    let width = index.n_heads * index.d_head;
    let k = &k.values[copy_idx * n_keys * index.d_key..(copy_idx + 1) * n_keys * index.d_key];
    let mut k = Cow::Borrowed(k);
    if let Some(mean) = &index.mean {
        let first = visibility.first_real_key().unwrap_or(0);
        mean.apply(context, (index.d_head, first), k.to_mut())?;
    }
    let input = IndexInput {
        q: &q.values[copy_idx * n_queries * width..],
        k: &k,
        weights: weights
            .as_ref()
            .map(|weights| &weights.values[copy_idx * n_queries * index.n_heads..]),
        n_heads: index.n_heads,
        d_head: index.d_head,
    };
    let of = (visibility, spec.n_heads);
    let picked = match top.by {
        KeyRank::Pools => PickedKeys::of_pools(top.n, input, of, context.pace),
        _ => PickedKeys::of(top, input, of, context.pace),
    };
    let picked = picked.ok_or(Error::Cancelled)?;
    Ok(Cow::Owned(visibility.clone().with_picked(Some(picked))))
}
