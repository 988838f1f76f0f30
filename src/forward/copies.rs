//! Several copies of one sequence in one residual: matrix products take all rows at once, attention runs per copy.

use std::ops::Range;

use attnscope_compute::attention::{AttentionSpec, Run, Visibility};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::block_weights::AttentionWeights;
use super::context::BlockContext;
use super::empty_places::attend_beside_empty;
use super::global_tokens::global_keys;
use super::indexer::with_picked;
use super::scratch::AttentionScratch;

/// Fills z with Σ p·v of every copy, from queries, keys and values of all copies. Keys of an encoder are stored once, since all
/// copies share them.
pub(super) fn attend_copies<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    weights: &AttentionWeights<'_, O>,
    (visibility, heads): (&Visibility, Range<usize>),
    copies: usize,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let ops = context.ops;
    let shared = context.bucket_values.as_deref();
    let run = Run {
        spec,
        repeats: None,
        value_norms: None,
        visibility,
        heads,
        sinks: weights.sinks.as_deref(),
        beside: None,
        bucket_values: weights.bucket_values.as_deref().or(shared),
        bias_factors: None,
        relative: weights.relative.as_ref(),
        positions: &context.sequence.positions,
        grid: context.sequence.grid(),
        globals: None,
        sink: None,
        kept: None,
        pace: context.pace,
    };
    let n_factors = s.bias_factors.len() / copies.max(1);
    let factors = |copy_idx: usize| {
        let first = copy_idx * n_factors;
        let of_copy = s.bias_factors.get(first..first + n_factors);
        of_copy.filter(|factors| !factors.is_empty())
    };
    if copies == 1 {
        let globals = global_keys(context, s, 0)?;
        attend_beside_empty(
            ops,
            &Run {
                visibility: &*with_picked(context, spec, visibility, 0, s)?,
                globals: globals.as_ref(),
                heads: run.heads.clone(),
                bias_factors: factors(0),
                ..run
            },
            [&s.q, &s.k, &s.v],
            &mut s.z,
        )?;
        return Ok(());
    }
    let mut together: Vec<f32> = Vec::new(); // [copy · position, n_heads · d_value]
    let mut width = 0;
    let (mut q, mut k, mut v) = Default::default();
    let mut z = O::Buffer::default();
    for copy_idx in 0..copies {
        part_of(ops, &s.q, (copy_idx, visibility.n_queries), &mut q)?;
        part_of(ops, &s.k, (copy_idx, visibility.n_keys), &mut k)?;
        part_of(ops, &s.v, (copy_idx, visibility.n_keys), &mut v)?;
        let globals = global_keys(context, s, copy_idx)?;
        attend_beside_empty(
            ops,
            &Run {
                visibility: &*with_picked(context, spec, visibility, copy_idx, s)?,
                globals: globals.as_ref(),
                heads: run.heads.clone(),
                bias_factors: factors(copy_idx),
                ..run
            },
            [&q, &k, &v],
            &mut z,
        )?;
        let host = ops.get(&z)?;
        width = host.width;
        together.reserve_exact(if copy_idx == 0 {
            copies * host.values.len()
        } else {
            0
        });
        together.extend_from_slice(&host.values);
    }
    ops.put_own(together, width, &mut s.z)
}

/// Repeats all rows `copies` times, one copy after another.
pub(super) fn repeat<O: Ops>(ops: &O, values: &mut O::Buffer, copies: usize) -> Result<()> {
    let host = ops.get(values)?;
    let (width, repeated) = (host.width, host.values.repeat(copies));
    ops.put_own(repeated, width, values)
}

/// Returns the rows of one copy, or all rows where all copies share them.
fn part_of<O: Ops>(
    ops: &O,
    from: &O::Buffer,
    (copy_idx, n_rows): (usize, usize),
    to: &mut O::Buffer,
) -> Result<()> {
    let host = ops.get(from)?;
    let n_values = n_rows * host.width;
    let at = if host.values.len() == n_values {
        0
    } else {
        copy_idx * n_values
    };
    ops.put(&host.values[at..at + n_values], host.width, to)
}
