//! One attention on a candle device, in row blocks: all heads of one or more kv heads × some queries × all their keys.

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::buffer::host;
use super::columns::{Columns, sum_over_heads};
use super::finished::Finished;
use super::go_on;
use super::group::{Group, HeadGroup};
use super::input::Input;
use super::maps::{Copies, Tally};
use super::rows::finish;
use super::scores::Block;
use crate::attention::{HeadSummary, Pooled, Run, SoftmaxAxis};
use crate::error::{Error, Result};

/// Runs the requested heads. Returns their summaries, and Σ p·v of all heads. // [query, n_heads · d_value]
pub(super) fn attend(
    run: &Run<'_>,
    input: Input<'_>,
    block_values: usize,
) -> Result<(Vec<HeadSummary>, Tensor)> {
    let (spec, device) = (run.spec, input.q.device());
    let n_queries = run.visibility.n_queries;
    let copies = match run.repeats {
        Some(repeats) => Copies::new(repeats, n_queries, device)?,
        None => None,
    };
    let mut summaries = Vec::with_capacity(run.heads.len());
    // Heads that were not requested are zero.
    let zeros = |n_heads: usize| match n_heads {
        0 => Ok(None),
        _ => Tensor::zeros((n_heads, n_queries, spec.d_value), DType::F32, device).map(Some),
    };
    let mut z = Vec::from_iter(zeros(run.heads.start)?); // [head, query, d_value] each
    let everyone = match spec.softmax_axis {
        SoftmaxAxis::Heads => Some(Group::new(run, input, HeadGroup::whole(spec))?),
        SoftmaxAxis::Keys | SoftmaxAxis::Queries => None,
    };
    for together in HeadGroup::all(run, block_values) {
        if let Some(sink) = run.sink
            && !sink.ready(together.heads.clone(), run.pace)
        {
            return Err(Error::Cancelled);
        }
        let group = Group::new(run, input, together)?;
        let shared = (copies.as_ref(), everyone.as_ref());
        let (of_heads, z_of_heads) = attend_together(&group, shared, block_values)?;
        summaries.extend(of_heads);
        z.push(z_of_heads);
    }
    z.extend(zeros(spec.n_heads - run.heads.end)?);
    let z = Tensor::cat(&z, 0)?.transpose(0, 1)?.contiguous()?; // [query, head, d_value]
    Ok((
        summaries,
        z.reshape((n_queries, spec.n_heads * spec.d_value))?,
    ))
}

/// Runs the heads of a group; a softmax over heads needs everyone's scores. // [head, query, d_value]
fn attend_together(
    group: &Group<'_>,
    (copies, everyone): (Option<&Copies>, Option<&Group<'_>>),
    block_values: usize,
) -> Result<(Vec<HeadSummary>, Tensor)> {
    let run = group.run;
    let columns = match run.spec.softmax_axis {
        SoftmaxAxis::Keys | SoftmaxAxis::Heads => None,
        SoftmaxAxis::Queries => {
            let mut columns = Columns::new(group)?;
            for queries in blocks(group, block_values) {
                go_on(run.pace)?;
                columns.add(group, &Block::new(group, queries)?)?;
            }
            Some(columns.log_sum_exp()?)
        }
    };
    let mut tally = Tally::new(group)?;
    let mut z = Vec::new();
    for queries in blocks(everyone.unwrap_or(group), block_values) {
        go_on(run.pace)?;
        let over_heads = match everyone {
            Some(all) => Some(sum_over_heads(all, &Block::new(all, queries.clone())?)?),
            None => None,
        };
        let block = Block::new(group, queries)?;
        let log_sums = over_heads.as_ref().or(columns.as_ref());
        let finished = finish(group, &block, log_sums, copies)?;
        tally.add(group, &block, &finished)?;
        hand_over(group, &block, &finished)?;
        z.push(values(group, &block, &finished.pattern)?);
        let n_seen: usize = block.n_visible.iter().sum();
        let per_seen = group.n_heads() * (run.spec.d_head + run.spec.d_value);
        run.pace.did((n_seen * per_seen) as u64);
    }
    Ok((tally.finish(group)?, Tensor::cat(&z, 1)?))
}

/// Blocks of as many queries as fit; rounded to whole rows of the pooled map if possible.
fn blocks(group: &Group<'_>, block_values: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let (n_queries, n_keys) = (group.run.visibility.n_queries, group.run.visibility.n_keys);
    let per_query = (group.n_heads() * n_keys).max(1);
    let n_rows = (block_values / per_query).clamp(1, n_queries.max(1));
    let per_cell = Pooled::new(n_queries, n_keys).queries_per_cell;
    let n_rows = if n_rows >= per_cell {
        n_rows - n_rows % per_cell
    } else {
        n_rows
    };
    let starts = (0..n_queries).step_by(n_rows);
    starts.map(move |start| start..(start + n_rows).min(n_queries))
}

/// Σ p·v of a block. // [head, row, d_value]
fn values(group: &Group<'_>, block: &Block, pattern: &Tensor) -> Result<Tensor> {
    let (n_kv, n_keys, d_value) = group.v.dims3()?;
    let n_heads = group.n_heads();
    let pattern = pattern.reshape((n_kv, n_heads / n_kv * block.n_rows(), n_keys))?;
    let z = pattern.matmul(&group.v)?;
    Ok(z.reshape((n_heads, block.n_rows(), d_value))?)
}

/// Copies scores and pattern to the sink, if there is one.
fn hand_over(group: &Group<'_>, block: &Block, finished: &Finished) -> Result<()> {
    let (Some(sink), Some(scores)) = (group.run.sink, &finished.scores) else {
        return Ok(());
    };
    for (idx, head_idx) in group.together.heads.clone().enumerate() {
        let of_head = |values: &Tensor| host(&values.narrow(0, idx, 1)?);
        let scores = of_head(scores)?;
        let pattern = of_head(&finished.pattern)?;
        sink.block(head_idx, block.queries.start, &scores, &pattern);
    }
    Ok(())
}
