//! Keys of pools behind those of tokens, and what an indexer needs to pick among them.

use attnscope_compute::attention::{RopeSpec, RopeTable};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{PoolSource, PooledKeys};

use super::context::BlockContext;
use super::scratch::AttentionScratch;

/// Puts the keys of every copy's pools behind those of its tokens, and so their values; gives an indexer its queries, keys and weights.
/// Pools are made of what the attention reads, which is the context's other sequence.
pub(super) fn join_pools<O: Ops>(
    context: &BlockContext<'_, O>,
    pooled: &PooledKeys,
    rope: Option<&RopeSpec>,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let Some(memory) = &context.memory else {
        return Ok(());
    };
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let made = pools_of(context, (&pooled.source, pooled.size), rope, memory.hidden)?;
    join_behind(context, &made, &mut s.k)?;
    join_behind(context, &made, &mut s.v)?;
    let Some(picks) = pooled.picks.as_deref() else {
        return Ok(());
    };
    let (mut q, mut weights) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(&s.normed_latent, &shelf.linear(&picks.q)?, &mut q, pace)?; // [position, n_heads · d_head]
    let table = RopeTable::new(&picks.rope, &context.positions());
    ops.rope(&mut q, &table, picks.keys.width())?;
    ops.linear(
        memory.hidden,
        &shelf.linear(&picks.weights)?,
        &mut weights,
        pace,
    )?; // [position, n_heads]
    let source = (&picks.keys, pooled.size);
    let keys = pools_of(context, source, Some(&picks.rope), memory.hidden)?;
    s.index
        .set(picks.n_heads, picks.keys.width(), [q, keys, weights]);
    Ok(())
}

/// The vector of every whole pool of each copy. // rows: [copy · position, d_model] → [copy · pool, d]
fn pools_of<O: Ops>(
    context: &BlockContext<'_, O>,
    (source, size): (&PoolSource, usize),
    rope: Option<&RopeSpec>,
    rows: &O::Buffer,
) -> Result<O::Buffer> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut values, mut shares) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(rows, &shelf.linear(&source.values)?, &mut values, pace)?;
    ops.linear(rows, &shelf.linear(&source.shares)?, &mut shares, pace)?;
    let stored_width = source.values.n_out();
    let stored = context
        .tensors
        .expect(&source.places, &[size, stored_width])?;
    let of_tokens = OfTokens {
        values: &ops.get(&values)?.values,
        shares: &ops.get(&shares)?.values,
        places: &stored.widen()?,
        stored_width,
    };
    let n_tokens = context.sequence.len();
    let n_pools = n_tokens / size.max(1);
    let n_copies = context.copies.unwrap_or(1);
    let mut made = Vec::with_capacity(n_copies * n_pools * source.width());
    for first in (0..n_copies).map(|copy_idx| copy_idx * n_tokens) {
        for pool_idx in 0..n_pools {
            let before = pool_idx.checked_sub(1).filter(|_| source.overlaps());
            let start = |pool_idx: usize| first + pool_idx * size;
            for column in 0..source.width() {
                let shift = if source.overlaps() { source.width() } else { 0 };
                let own = (start(pool_idx), shift + column);
                let before = before.map(|before| (start(before), column));
                made.push(of_tokens.mean(before.into_iter().chain([own]), size));
            }
        }
    }
    let (mut means, mut normed) = (O::Buffer::default(), O::Buffer::default());
    ops.put_own(made, source.width(), &mut means)?;
    if n_pools == 0 {
        return Ok(means);
    }
    ops.norm(&means, &shelf.norm(&source.norm)?, &mut normed)?;
    if let Some(rope) = rope {
        let firsts = context
            .sequence
            .positions
            .chunks_exact(size)
            .map(|pool| pool[0]);
        let positions = firsts.collect::<Vec<usize>>().repeat(n_copies);
        ops.rope(
            &mut normed,
            &RopeTable::new(rope, &positions),
            source.width(),
        )?;
    }
    Ok(normed)
}

/// What tokens give to pools.
struct OfTokens<'a> {
    /// [row, width]
    values: &'a [f32],
    /// [row, width]
    shares: &'a [f32],
    /// [place, width]
    places: &'a [f32],
    stored_width: usize,
}

impl OfTokens<'_> {
    /// The mean of one column over some pools, each with its first row, weighed by a softmax over all of their rows.
    fn mean(&self, pools: impl Iterator<Item = (usize, usize)>, size: usize) -> f32 {
        let rows = pools.flat_map(|(start, column)| {
            (0..size).map(move |place| {
                let at = (start + place) * self.stored_width + column;
                let share = self.shares[at] + self.places[place * self.stored_width + column];
                (f64::from(share), f64::from(self.values[at]))
            })
        });
        let rows: Vec<(f64, f64)> = rows.collect();
        let largest = rows
            .iter()
            .fold(f64::NEG_INFINITY, |most, (share, _)| most.max(*share));
        let sums = rows.iter().fold((0.0, 0.0), |(all, sum), (share, value)| {
            let weight = (share - largest).exp();
            (all + weight, sum + weight * value)
        });
        (sums.1 / sums.0) as f32
    }
}

/// Puts the rows of each copy's pools behind those of its tokens. // [copy · position, d] → [copy · (position, pool), d]
fn join_behind<O: Ops>(
    context: &BlockContext<'_, O>,
    pools: &O::Buffer,
    rows: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let (of_tokens, of_pools) = (ops.get(rows)?, ops.get(pools)?);
    let width = of_tokens.width;
    let n_values = (context.sequence.len() * width).max(1);
    let n_of_pools = of_pools.values.len() / context.copies.unwrap_or(1).max(1);
    let mut joined = Vec::with_capacity(of_tokens.values.len() + of_pools.values.len());
    for (copy_idx, tokens) in of_tokens.values.chunks(n_values).enumerate() {
        joined.extend_from_slice(tokens);
        joined.extend_from_slice(&of_pools.values[copy_idx * n_of_pools..][..n_of_pools]);
    }
    drop((of_tokens, of_pools));
    ops.put_own(joined, width, rows)
}
