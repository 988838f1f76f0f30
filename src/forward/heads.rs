//! Runs all heads of an attention, including heads with overriding specs of their own.

use std::borrow::Cow;

use attnscope_compute::attention::{AttentionSpec, BlockSink, HeadSummary, RopeTable};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{Ablation, Exceptions, NormSource, ProjectionSpec, Variant};

use super::attend::attend;
use super::block_weights::AttentionWeights;
use super::context::BlockContext;
use super::first_rows::change_firsts;
use super::global_tokens::{measure_globals, tell_globals};
use super::grid_maps::OtherKeys;
use super::hook::{Hooks, NoHooks};
use super::own_values::take_out_own;
use super::project::project;
use super::scratch::AttentionScratch;
use super::side_stream::advance_side;
use super::value_norms::{tell_norms, value_norms};

/// One attention and its weights.
pub(super) struct Attending<'s, 'w, O: Ops> {
    pub attention: &'s AttentionSpec,
    pub projections: &'s ProjectionSpec,
    pub exceptions: &'s Exceptions,
    pub pre: &'s Option<NormSource>,
    pub weights: &'s AttentionWeights<'w, O>,
    /// Output projection.
    pub o: &'s O::Linear<'w>,
}

/// Projects queries, keys and values, and runs all heads; exceptions run by their own specs.
pub(super) fn run_heads<O: Ops>(
    context: &BlockContext<'_, O>,
    of: Attending<'_, '_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<Vec<HeadSummary>> {
    let spec = of.attention;
    let other = OtherKeys::of(context, of.projections, of.weights, resid)?;
    let of_other = other.as_ref().map(|keys| keys.context(context));
    let context = of_other.as_ref().unwrap_or(context);
    project(context, spec, of.projections, of.weights, resid, s, hooks)?;
    run_projected(context, &of, resid, s, hooks)
}

/// Runs all heads on queries, keys and values that are there.
pub(super) fn run_projected<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<Vec<HeadSummary>> {
    let (ops, spec) = (context.ops, of.attention);
    let is_there = s.past.as_ref().is_some_and(|past| past.is_whole);
    let mut norms = if is_there {
        None
    } else {
        value_norms(context, (spec, of.projections), of.o, s)?
    };
    measure_globals(context, spec, of.o, s)?;
    if let Some(past) = &mut s.past {
        past.join(ops, spec.is_cross, &mut s.k, &mut s.v)?;
        norms = past.join_norms(norms);
        if of.projections.indexer.is_some() {
            past.join_index(ops, &mut s.index.k)?;
        }
    }
    let norms = norms.as_deref();
    tell_norms(norms, hooks)?;
    tell_globals(context, s, hooks)?;
    let seen = (norms, hooks.blocks());
    let summaries = attend_all(context, of, Values::Own, resid, seen, s)?;
    if let (true, Some(rope)) = (of.projections.turns_back, &spec.rope) {
        let back = rope.reversed();
        let table = RopeTable::new(&context.sequence.turning(&back), &context.positions());
        ops.rope(&mut s.z, &table, spec.d_value)?;
    }
    if let Some(shares) = &of.projections.own_value_shares {
        take_out_own(context, (spec, shares), &s.v, &mut s.z)?;
    }
    if let Some(side) = of.projections.side.as_deref() {
        let z = side_heads(context, of, resid, s)?;
        advance_side(context, side, &z, &mut s.kept)?;
    }
    if let Some(past) = &mut s.past {
        past.take_back(&mut s.k, &mut s.v);
    }
    if let Some(norm) = &of.weights.each_z_norm {
        ops.norm_heads(&mut s.z, norm, spec.d_value)?;
    }
    if of.weights.gate.is_some() {
        ops.multiply(&mut s.z, &s.gate)?;
    }
    ablate(context, of.exceptions, spec.d_value, &mut s.z)?;
    change_firsts(context, of.projections.firsts, &mut s.z)?;
    Ok(summaries)
}

/// log Σ exp(score) of every row, from queries and keys that are there. // [query, head]
pub(super) fn log_sums<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<Vec<f32>> {
    let heads = attend_all(context, of, Values::Own, resid, (None, None), s)?;
    let n_queries = heads.first().map_or(0, |head| head.rows.len());
    let of_query = |query_idx: usize| heads.iter().map(move |head| &head.rows[query_idx]);
    let rows = (0..n_queries).flat_map(of_query);
    Ok(rows.map(|row| row.log_sum_exp).collect())
}

/// Which values a pattern weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Own,
    /// Those of a second stream.
    Side,
}

/// What looks on while heads run: norms of values, and what receives row blocks.
type Seen<'a> = (Option<&'a [Vec<f32>]>, Option<&'a dyn BlockSink>);

/// Runs all heads from queries, keys and values, and fills `s.z`; exceptions run by their own specs.
fn attend_all<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    whose: Values,
    resid: &O::Buffer,
    seen: Seen<'_>,
    s: &mut AttentionScratch<O>,
) -> Result<Vec<HeadSummary>> {
    let (ops, spec) = (context.ops, &*with_width(of, of.attention, whose));
    let mut summaries = Vec::with_capacity(spec.n_heads);
    let mut together = None; // [position, n_heads · d_value]
    let mut at = 0;
    for variant in &of.exceptions.variants {
        let before = at..variant.heads.start;
        if !before.is_empty() {
            let visibility = context.visibility(spec);
            let heads = attend(context, spec, of.weights, &visibility, before, seen, s)?;
            summaries.extend(heads);
            gather(ops, &mut together, &mut s.z)?;
        }
        let from = (resid, &s.kept[..], &s.beside[..]);
        let heads = attend_variant(context, of, (variant, whose), from, seen, &mut together)?;
        summaries.extend(heads);
        at = variant.heads.end;
    }
    if at < spec.n_heads {
        let (rest, visibility) = (at..spec.n_heads, context.visibility(spec));
        let heads = attend(context, spec, of.weights, &visibility, rest, seen, s)?;
        summaries.extend(heads);
        gather(ops, &mut together, &mut s.z)?;
    }
    if let Some(together) = together {
        s.z = together;
    }
    Ok(summaries)
}

/// An attention with the width of the values that are weighed.
fn with_width<'a, O: Ops>(
    of: &Attending<'_, '_, O>,
    spec: &'a AttentionSpec,
    whose: Values,
) -> Cow<'a, AttentionSpec> {
    match (whose, of.projections.side.as_deref()) {
        (Values::Side, Some(side)) => Cow::Owned(AttentionSpec {
            d_value: side.v.n_out() / spec.n_kv_heads.max(1),
            ..spec.clone()
        }),
        _ => Cow::Borrowed(spec),
    }
}

/// What the heads give of the values of a second stream. // [position, n_heads · its d_value]
fn side_heads<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    resid: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<O::Buffer> {
    std::mem::swap(&mut s.v, &mut s.side_v);
    let own = std::mem::take(&mut s.z);
    attend_all(context, of, Values::Side, resid, (None, None), s)?;
    std::mem::swap(&mut s.v, &mut s.side_v);
    let mut z = std::mem::replace(&mut s.z, own);
    let width = with_width(of, of.attention, Values::Side).d_value;
    ablate(context, of.exceptions, width, &mut z)?;
    Ok(z)
}

/// Runs heads that have a spec of their own, with queries and keys of their own.
fn attend_variant<O: Ops>(
    context: &BlockContext<'_, O>,
    of: &Attending<'_, '_, O>,
    (variant, whose): (&Variant, Values),
    (resid, kept, beside): (&O::Buffer, &[f32], &[f32]),
    seen: Seen<'_>,
    together: &mut Option<O::Buffer>,
) -> Result<Vec<HeadSummary>> {
    let spec = &variant.attention;
    let mut s = AttentionScratch::<O> {
        kept: kept.to_vec(),
        beside: beside.to_vec(),
        ..AttentionScratch::default()
    };
    let projections = &variant.projections;
    let weights = AttentionWeights::read(context.shelf(), of.pre, projections, spec.n_heads)?;
    project(
        context,
        spec,
        projections,
        &weights,
        resid,
        &mut s,
        &mut NoHooks,
    )?;
    if whose == Values::Side {
        std::mem::swap(&mut s.v, &mut s.side_v);
    }
    let (spec, visibility) = (&*with_width(of, spec, whose), context.visibility(spec));
    let range = variant.heads.clone();
    let heads = attend(context, spec, &weights, &visibility, range, seen, &mut s)?;
    gather(context.ops, together, &mut s.z)?;
    Ok(heads)
}

/// Adds a partial output to the total. Each partial output is zero in the columns of the other heads.
fn gather<O: Ops>(ops: &O, together: &mut Option<O::Buffer>, z: &mut O::Buffer) -> Result<()> {
    match together {
        Some(together) => ops.add(together, z),
        None => {
            *together = Some(std::mem::take(z));
            Ok(())
        }
    }
}

/// Replaces the outputs of ablated heads with zeros or their mean. // z: [position, n_heads · d_value]
fn ablate<O: Ops>(
    context: &BlockContext<'_, O>,
    exceptions: &Exceptions,
    d_value: usize,
    z: &mut O::Buffer,
) -> Result<()> {
    if exceptions.ablated.is_empty() {
        return Ok(());
    }
    let host = context.ops.get(z)?;
    let width = host.width;
    let mut values = host.values.into_owned();
    for (head_idx, ablation) in &exceptions.ablated {
        let columns = head_idx * d_value..(head_idx + 1) * d_value;
        for copy in values.chunks_mut((context.sequence.len() * width).max(1)) {
            let mut stand_in = vec![0.0f64; d_value];
            if *ablation == Ablation::Mean {
                let rows = copy.chunks(width).enumerate();
                let real = rows.filter(|(position_idx, _)| context.sequence.is_real(*position_idx));
                let mut n = 0.0;
                for (_, row) in real {
                    n += 1.0;
                    let pairs = stand_in.iter_mut().zip(&row[columns.clone()]);
                    pairs.for_each(|(sum, v)| *sum += f64::from(*v));
                }
                stand_in.iter_mut().for_each(|sum| *sum /= n);
            }
            for row in copy.chunks_mut(width) {
                let pairs = row[columns.clone()].iter_mut().zip(&stand_in);
                pairs.for_each(|(to, v)| *to = *v as f32);
            }
        }
    }
    context.ops.put_own(values, width, z)
}
