//! A block run as readings suppose that it was trained: many readings and texts at a time, only their residuals.

use std::ops::Range;

use rayon::prelude::*;

use super::context::{AttentionScratch, BlockContext, Memory, Scratch};
use super::embed::Sequence;
use super::experts::experts;
use super::forward::{
    norm_queries_and_keys, normed_in_place, project_only, run_cross, run_mlp, scaled,
};
use super::hook::NoHooks;
use super::recurrent::Ends;
use super::spec::{BlockSpec, CrossSpec, FeedForward, SelfSpec};
use super::weights::{BlockWeights, CrossWeights};
use crate::attention::{AttentionSpec, HeadInput, Odd, RopeTable, Run, Visibility, attend_oddly};
use crate::error::Result;
use crate::ops::{OnHost, Ops};

/// How heads are cut out of a row of all heads' values, and put together again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Each head has its columns.
    #[default]
    Columns,
    /// The numbers are taken as [head, position, d_head] in the order in which they lie: no axis was exchanged.
    AsTheyLie,
}

/// What is rotated by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turned {
    #[default]
    ByPosition,
    Twice,
    /// By the number of the head.
    ByHead,
    /// Values too.
    WithValues,
}

/// How a block's attention deviates from its spec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    pub attention: Odd,
    pub cut: Cut,
    pub joined: Cut,
    pub turned: Turned,
}

impl Deviation {
    /// None at all.
    pub const NONE: Self = Self {
        attention: Odd::NONE,
        cut: Cut::Columns,
        joined: Cut::Columns,
        turned: Turned::ByPosition,
    };
}

/// Which residuals a block's writing is not added to: it takes their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    pub before_attention: bool,
    pub before_mlp: bool,
}

/// One text under one reading: some rows of a residual that holds many.
pub struct Segment<'a> {
    pub rows: Range<usize>,
    pub sequence: &'a Sequence,
    pub attention: Option<&'a AttentionSpec>,
    pub deviation: &'a Deviation,
    /// The encoder's output, and the tokens it belongs to. // [source position, d_model]
    pub source: Option<(&'a [f32], &'a Sequence)>,
}

/// Runs one block on a residual that holds several segments, in place; they share weights, and all but attention.
///
/// # Errors
/// When the pace stops it, a tensor is not as the spec says, or the device fails.
pub fn run_block_as_read<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, dropped): (&BlockSpec, Dropped),
    weights: &BlockWeights<'_, O>,
    segments: &[Segment<'_>],
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
) -> Result<()> {
    let ops = context.ops;
    if let Some(own) = spec.own() {
        attend(context, own, weights, segments, resid, &mut s.attention)?;
    }
    let of_attention = &mut s.attention;
    ops.linear(
        &of_attention.z,
        &weights.o,
        &mut of_attention.out,
        context.pace,
    )?; // [row, d_model]
    normed_in_place(
        ops,
        weights.attn_out.as_ref(),
        &mut of_attention.out,
        &mut s.spare,
    )?;
    scaled(ops, spec.branch_scale, &mut of_attention.out)?;
    if spec.adds_to_normed {
        ops.copy(&of_attention.normed, resid)?;
    }
    if !spec.is_parallel {
        if dropped.before_attention {
            ops.scale(resid, 0.0)?;
        }
        ops.add(resid, &of_attention.out)?;
        normed_in_place(ops, weights.attn_post.as_ref(), resid, &mut s.spare)?;
    }
    if let (Some(cross), Some(weights)) = (&spec.cross, &weights.cross) {
        attend_across(context, cross, weights, segments, resid)?;
    }

    let mlp_in = match &weights.mlp_pre {
        Some(norm) => {
            ops.norm(resid, norm, &mut s.normed)?;
            &s.normed
        }
        None => &*resid,
    };
    match (&spec.feed_forward, &weights.mlp) {
        (FeedForward::Dense(mlp), Some(weights)) => {
            run_mlp(context, mlp, weights, mlp_in, &mut s.mlp, &mut s.mlp_out)?; // [row, d_model]
        }
        (FeedForward::Dense(_), None) => {}
        (FeedForward::Experts(spec), _) => {
            experts(context, spec, mlp_in, &mut s.mlp, &mut s.mlp_out)?; // [row, d_model]
        }
    }
    normed_in_place(ops, weights.mlp_out.as_ref(), &mut s.mlp_out, &mut s.spare)?;
    scaled(ops, spec.branch_scale, &mut s.mlp_out)?;
    if spec.adds_to_normed && weights.mlp_pre.is_some() {
        ops.copy(&s.normed, resid)?;
    }
    if dropped.before_mlp {
        ops.scale(resid, 0.0)?;
    }
    if spec.is_parallel {
        ops.add(resid, &s.attention.out)?;
    }
    ops.add(resid, &s.mlp_out)?;
    normed_in_place(ops, weights.mlp_post.as_ref(), resid, &mut s.spare)
}

/// Fills `z` with Σ p·v of all heads.
fn attend<O: Ops>(
    context: &BlockContext<'_, O>,
    own: &SelfSpec,
    weights: &BlockWeights<'_, O>,
    segments: &[Segment<'_>],
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let ops = context.ops;
    let weights = &weights.attention;
    project_only(context, &own.attention, &own.projections, weights, resid, s)?;
    if segments
        .iter()
        .any(|segment| segment.deviation.cut == Cut::AsTheyLie)
    {
        for (values, of) in [(&mut s.q, true), (&mut s.k, false), (&mut s.v, false)] {
            cut_as_they_lie(ops, values, of, segments, &own.attention)?;
        }
    }
    norm_queries_and_keys(ops, &own.projections, weights, s)?;
    let (q, k, v) = (ops.get(&s.q)?, ops.get(&s.k)?, ops.get(&s.v)?);
    let width = own.attention.n_heads * own.attention.d_value;
    let z = |segment: &Segment<'_>| {
        let attention = segment.attention.unwrap_or(&own.attention);
        let mut parts = [&q, &k, &v].map(|values| rows_of(values, &segment.rows));
        turn(attention, segment, &mut parts);
        let [q, k, v] = &parts;
        let input = HeadInput { q, k, v };
        let real = segment.sequence.real.as_deref();
        let run = Run {
            spec: attention,
            repeats: None,
            visibility: &Visibility::of_self(attention.mask, segment.rows.len(), real),
            heads: 0..attention.n_heads,
            sinks: weights.sinks.as_deref(),
            bucket_values: context.bucket_values.as_deref(),
            positions: &segment.sequence.positions,
            sink: None,
            pace: context.pace,
        };
        let z = attend_oddly(&run, input, &segment.deviation.attention);
        match segment.deviation.joined {
            Cut::Columns => z,
            Cut::AsTheyLie => to_heads_first(&z, attention.n_heads, attention.d_value),
        }
    };
    let parts: Vec<Vec<f32>> = segments.par_iter().map(z).collect();
    let together = parts.concat();
    drop((q, k, v));
    ops.put(&together, width, &mut s.z) // [row, n_heads · d_value]
}

fn rows_of(values: &OnHost<'_>, rows: &Range<usize>) -> Vec<f32> {
    values.values[rows.start * values.width..rows.end * values.width].to_vec()
}

/// Attends to the encoder's output, one segment after another.
fn attend_across<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &CrossSpec,
    weights: &CrossWeights<'_, O>,
    segments: &[Segment<'_>],
    resid: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let all = ops.get(resid)?;
    let (width, mut together) = (all.width, Vec::new());
    let ends = Ends::default();
    for segment in segments {
        let (mut one, mut hidden) = (O::Buffer::default(), O::Buffer::default());
        ops.put(&rows_of(&all, &segment.rows), width, &mut one)?;
        let Some((source, sequence)) = segment.source else {
            continue;
        };
        ops.put(source, source.len() / sequence.len().max(1), &mut hidden)?;
        let of_segment = BlockContext {
            ops,
            tensors: context.tensors,
            sequence: segment.sequence,
            bucket_values: context.bucket_values.clone(),
            memory: Some(Memory {
                hidden: &hidden,
                sequence,
                ends: &ends,
            }),
            pace: context.pace,
        };
        let (mut s, mut spare) = (AttentionScratch::default(), O::Buffer::default());
        run_cross(
            &of_segment,
            spec,
            weights,
            &mut one,
            &mut s,
            &mut spare,
            &mut NoHooks,
        )?;
        together.extend_from_slice(&ops.get(&one)?.values);
    }
    drop(all);
    ops.put(&together, width, resid)
}

/// Applies rotary positions to queries and keys, where there are any. // parts: q, k, v, each [position, heads · d_head]
fn turn(attention: &AttentionSpec, segment: &Segment<'_>, parts: &mut [Vec<f32>; 3]) {
    let Some(rope) = &attention.rope else {
        return;
    };
    let (d_head, turned) = (attention.d_head, segment.deviation.turned);
    let numbers: Vec<usize> = (0..attention.n_heads.max(attention.n_kv_heads)).collect();
    let by_head = turned == Turned::ByHead;
    let by = if by_head {
        &numbers
    } else {
        &segment.sequence.positions
    };
    let table = RopeTable::new(rope, by);
    let [q, k, v] = parts;
    let rotate = |values: &mut [f32], n_heads: usize| {
        for (position_idx, row) in values.chunks_mut(n_heads * d_head).enumerate() {
            for (head_idx, head) in row.chunks_mut(d_head).enumerate() {
                table.rotate(if by_head { head_idx } else { position_idx }, head);
            }
        }
    };
    let n_times = if turned == Turned::Twice { 2 } else { 1 };
    for _ in 0..n_times {
        rotate(q, attention.n_heads);
        rotate(k, attention.n_kv_heads);
    }
    if turned == Turned::WithValues && attention.d_value == d_head {
        rotate(v, attention.n_kv_heads);
    }
}

/// Takes the numbers of some segments as [head, position, d_head], as they lie. // values: [row, heads · d_head]
fn cut_as_they_lie<O: Ops>(
    ops: &O,
    values: &mut O::Buffer,
    are_queries: bool,
    segments: &[Segment<'_>],
    attention: &AttentionSpec,
) -> Result<()> {
    let host = ops.get(values)?;
    let (width, mut together) = (host.width, Vec::with_capacity(host.values.len()));
    for segment in segments {
        let own = segment.attention.unwrap_or(attention);
        let n_heads = if are_queries {
            own.n_heads
        } else {
            own.n_kv_heads
        };
        let rows = rows_of(&host, &segment.rows);
        together.extend(match segment.deviation.cut {
            Cut::Columns => rows,
            Cut::AsTheyLie => from_heads_first(&rows, n_heads, width / n_heads.max(1)),
        });
    }
    drop(host);
    ops.put(&together, width, values)
}

/// Numbers that lie as [head, position, d_head], as [position, head, d_head].
fn from_heads_first(values: &[f32], n_heads: usize, d_head: usize) -> Vec<f32> {
    exchanged(
        values,
        n_heads,
        values.len() / (n_heads * d_head).max(1),
        d_head,
    )
}

/// Numbers that lie as [position, head, d_head], as [head, position, d_head].
fn to_heads_first(values: &[f32], n_heads: usize, d_head: usize) -> Vec<f32> {
    exchanged(
        values,
        values.len() / (n_heads * d_head).max(1),
        n_heads,
        d_head,
    )
}

/// [outer, inner, width] → [inner, outer, width].
fn exchanged(values: &[f32], n_outer: usize, n_inner: usize, width: usize) -> Vec<f32> {
    let mut moved = Vec::with_capacity(values.len());
    for inner in 0..n_inner {
        for outer in 0..n_outer {
            moved.extend_from_slice(&values[(outer * n_inner + inner) * width..][..width]);
        }
    }
    moved
}
