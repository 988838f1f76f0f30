//! All heads of one attention, streamed: strips of queries run in parallel and are merged in order.
//!
//! [`run_head`] defines every number; this computes the same numbers with vectorised kernels, in memory that does not grow with
//! heads × length².

use std::ops::Range;

use rayon::prelude::*;

use super::block::{run_head, sum_over_heads};
use super::head::HeadInput;
use super::head_bias::HeadBias;
use super::kv_head::{KvHead, PACKED_BYTES};
use super::log_sums::LogSums;
use super::plan::{HeadPlan, MARGIN, block_rows};
use super::pooled::Pooled;
use super::row::HeadMath;
use super::run::Run;
use super::samples::sampled_queries;
use super::spec::SoftmaxAxis;
use super::strip::{Strip, StripRun};
use super::summary::{HeadSummary, RowSummary};
use crate::kernels::MatrixMut;
use crate::kernels::simd::{ColumnLogSums, Keys, Level};

/// Largest number of strips per head; each holds a row of column sums until they are merged.
const MOST_STRIPS: usize = 16;

/// Runs the heads that `run` asks for, with one level's instructions; `None` if it was stopped.
///
/// `z` receives Σ p·v of those heads; values of other heads are left unchanged. Results are bit-identical for any number of
/// threads.
/// // z: [query, n_heads · d_value]
pub fn stream_heads(
    run: &Run<'_>,
    input: HeadInput<'_>,
    level: Level,
    z: &mut [f32],
) -> Option<Vec<HeadSummary>> {
    let spec = run.spec;
    let mut packing = Packing {
        input,
        level,
        log_sums: None,
    };
    let over_heads = match spec.softmax_axis {
        SoftmaxAxis::Heads => Some(sum_heads(run, packing)?),
        SoftmaxAxis::Keys | SoftmaxAxis::Queries => None,
    };
    packing.log_sums = over_heads.as_ref().map(OverHeads::view);
    let per_kv_head = spec.n_heads / spec.n_kv_heads;
    let n_keys = run.visibility.n_keys;
    let bytes = Keys::bytes(n_keys, spec.d_head) + Keys::bytes(n_keys, spec.d_value);
    let n_at_once = (PACKED_BYTES / bytes.max(1)).max(1) * per_kv_head;
    let mut all = Vec::with_capacity(run.heads.len());
    let mut start = run.heads.start;
    while start < run.heads.end {
        // Rounds to whole groups of heads that share a kv head, so that no kv head is packed twice.
        let mut end = ((start / per_kv_head * per_kv_head) + n_at_once).min(run.heads.end);
        if let Some(sink) = run.sink {
            if let Some(n) = sink.n_heads_at_once() {
                let most = start + n.max(1);
                let whole = most / per_kv_head * per_kv_head;
                end = end.min(if whole > start { whole } else { most });
            }
            if !sink.ready(start..end, run.pace) {
                return None;
            }
        }
        all.extend(some_heads(run, packing, start..end, z)?);
        start = end;
    }
    Some(all)
}

/// Runs some heads at the same time.
fn some_heads(
    run: &Run<'_>,
    packing: Packing<'_>,
    heads: Range<usize>,
    z: &mut [f32],
) -> Option<Vec<HeadSummary>> {
    let spec = run.spec;
    let input = packing.input;
    let ran = packing.with_plans(run, heads.clone(), |plans| {
        if spec.softmax_axis == SoftmaxAxis::Queries {
            sum_columns(plans)?;
        }
        run_plans(plans, z)
    });
    let mut ran = ran?.into_iter().peekable();
    let mut by_definition = |head_idx: usize| {
        let head = run_head(run, input, head_idx)?;
        let width = spec.n_heads * spec.d_value;
        for (row, from) in z.chunks_mut(width).zip(head.z.chunks(spec.d_value)) {
            row[head_idx * spec.d_value..][..spec.d_value].copy_from_slice(from);
        }
        Some(head.summary)
    };
    // A head with a NaN or infinite value runs on the reference path: 0 times such a value is not 0.
    heads
        .map(|head_idx| match ran.next_if(|(of, _)| *of == head_idx) {
            Some((_, ran)) => Some(ran),
            None => by_definition(head_idx),
        })
        .collect()
}

/// What heads are packed from.
#[derive(Clone, Copy)]
struct Packing<'a> {
    input: HeadInput<'a>,
    level: Level,
    /// What weights are relative to in a softmax over heads.
    log_sums: Option<LogSums<'a>>,
}

impl Packing<'_> {
    /// Hands over the plans of those of some heads whose values are all finite.
    fn with_plans<R>(
        self,
        run: &Run<'_>,
        heads: Range<usize>,
        take: impl FnOnce(&mut [HeadPlan<'_>]) -> R,
    ) -> R {
        let (spec, input, level) = (run.spec, self.input, self.level);
        let n_keys = run.visibility.n_keys;
        let visible = run.visibility.real_keys().map(|real| {
            let mut flags: Vec<f32> = real.iter().map(|r| f32::from(u8::from(*r))).collect();
            flags.resize(n_keys + MARGIN, 0.0);
            flags
        });
        let first_kv = spec.kv_head_of(heads.start);
        let kv_heads = first_kv..spec.kv_head_of(heads.end - 1) + 1;
        let pack = |input: HeadInput<'_>| -> Vec<Option<KvHead>> {
            let heads = kv_heads.clone().into_par_iter();
            let packed = heads.map(|kv_head_idx| KvHead::of(run, input, level, kv_head_idx));
            packed.collect()
        };
        let packed = pack(input);
        let of_globals = run.globals.map(|globals| (globals, globals.input(input.q)));
        let packed_globals = of_globals.map(|(_, input)| pack(input));
        let learned = |head_idx: usize| HeadBias::of(run, input, head_idx);
        let learned: Vec<HeadBias> = heads.clone().into_par_iter().map(learned).collect();
        let sampled = sampled_queries(run.visibility);
        let mut plans = Vec::new();
        for (nth, head_idx) in heads.enumerate() {
            let kv_idx = spec.kv_head_of(head_idx) - first_kv;
            let Some(kv) = &packed[kv_idx] else {
                continue;
            };
            let math = HeadMath {
                spec,
                head_idx,
                visibility: run.visibility,
                sink: run.sinks.map(|sinks| sinks[head_idx]),
                k_norms: &kv.norms,
                value_norms: run.value_norms_of(head_idx),
                log_sums: self.log_sums,
                positions: run.positions,
                learned: &learned[nth],
            };
            let shared = (visible.as_deref(), sampled.as_slice());
            let global = match (of_globals, &packed_globals) {
                (Some((globals, input)), Some(packed)) => {
                    let Some(kv) = &packed[kv_idx] else {
                        continue;
                    };
                    let math = HeadMath {
                        k_norms: &kv.norms,
                        value_norms: globals.value_norms_of(head_idx),
                        ..math
                    };
                    let plan = HeadPlan::new(run, level, shared, (input, kv), math);
                    Some(Box::new(plan))
                }
                _ => None,
            };
            plans.push(HeadPlan {
                global,
                ..HeadPlan::new(run, level, shared, (input, kv), math)
            });
        }
        let taken = take(&mut plans);
        drop(plans);
        for (kv_head_idx, kv) in (first_kv..).zip(packed) {
            if let Some(kv) = kv {
                kv.put_aside(run.kept, kv_head_idx);
            }
        }
        for kv in packed_globals.into_iter().flatten().flatten() {
            kv.put_aside(None, 0);
        }
        taken
    }
}

/// Number of queries per strip; depends only on the lengths.
fn strip_rows(plan: &HeadPlan<'_>) -> usize {
    let n_rows = block_rows(plan.kv.keys.width());
    let n_blocks = plan.run.visibility.n_queries_to_run().div_ceil(n_rows);
    n_blocks.div_ceil(MOST_STRIPS).max(1) * n_rows
}

/// The strips of a head.
fn strips(plan: &HeadPlan<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
    let (visibility, n) = (plan.run.visibility, strip_rows(plan));
    let n_queries = visibility.n_queries;
    (visibility.first_query()..n_queries)
        .step_by(n)
        .map(move |start| start..(start + n).min(n_queries))
}

/// Computes each plan's log Σ over queries.
fn sum_columns(plans: &mut [HeadPlan<'_>]) -> Option<()> {
    let of_plan = |(nth, plan)| strips(plan).map(move |strip| (nth, strip));
    let tasks: Vec<(usize, Range<usize>)> = plans.iter().enumerate().flat_map(of_plan).collect();
    let sums: Option<Vec<(usize, ColumnLogSums)>> = tasks
        .into_par_iter()
        .map(|(nth, strip)| Some((nth, plans[nth].column_sums(strip)?)))
        .collect();
    let mut sums = sums?.into_iter().peekable();
    for (nth, plan) in plans.iter_mut().enumerate() {
        let mut all = ColumnLogSums::new(plan.run.visibility.n_keys);
        while let Some((_, strip)) = sums.next_if(|(of, _)| *of == nth) {
            all.add_all(&strip);
        }
        plan.column_log_sums = all.log_sums();
        plan.column_log_sums.resize(plan.kv.keys.width(), 0.0);
        if let Some(global) = &mut plan.global {
            global.column_log_sums.clone_from(&plan.column_log_sums);
        }
    }
    Some(())
}

/// log Σ over heads of e^s of each pair, as rows of plans need it.
struct OverHeads {
    /// [query, width]
    values: Vec<f32>,
    width: usize,
    first_query: usize,
}

impl OverHeads {
    fn view(&self) -> LogSums<'_> {
        LogSums::OverHeads {
            values: &self.values,
            width: self.width,
            first_query: self.first_query,
        }
    }
}

/// Computes log Σ over all heads, whichever of them are to be run.
fn sum_heads(run: &Run<'_>, packing: Packing<'_>) -> Option<OverHeads> {
    let (n_heads, n_keys) = (run.spec.n_heads, run.visibility.n_keys);
    let first_query = run.visibility.first_query();
    packing.with_plans(run, 0..n_heads, |plans| {
        let width = plans.first().map_or(n_keys, HeadPlan::width);
        let mut values = vec![0.0; run.visibility.n_queries_to_run() * width];
        if plans.len() < n_heads {
            let by_definition = sum_over_heads(run, packing.input)?;
            let rows = values.chunks_mut(width.max(1));
            rows.zip(by_definition.chunks(n_keys.max(1)))
                .for_each(|(to, from)| to[..n_keys].copy_from_slice(from));
        } else {
            let n_rows = strip_rows(&plans[0]);
            let tasks: Vec<_> = strips(&plans[0])
                .zip(values.chunks_mut(n_rows * width))
                .collect();
            let sum = |(queries, rows): (Range<usize>, &mut [f32])| -> Option<()> {
                let mut sums: Vec<_> = queries
                    .clone()
                    .map(|_| ColumnLogSums::new(n_keys))
                    .collect();
                for plan in plans.iter() {
                    plan.add_rows(queries.clone(), &mut sums)?;
                }
                for (row, sums) in rows.chunks_mut(width).zip(sums) {
                    row[..n_keys].copy_from_slice(&sums.log_sums());
                }
                Some(())
            };
            tasks.into_par_iter().map(sum).collect::<Option<()>>()?;
        }
        Some(OverHeads {
            values,
            width,
            first_query,
        })
    })
}

/// Runs every strip, and merges the strips of each head.
fn run_plans(plans: &[HeadPlan<'_>], z: &mut [f32]) -> Option<Vec<(usize, HeadSummary)>> {
    let Some(first) = plans.first() else {
        return Some(Vec::new());
    };
    let n_queries = first.run.visibility.n_queries_to_run();
    let spec = first.math.spec;
    let (n_rows, d_value) = (strip_rows(first), spec.d_value);
    let mut rows: Vec<Vec<RowSummary>> = plans
        .par_iter()
        .map(|_| vec![RowSummary::empty(false); n_queries])
        .collect();
    let n_strips = n_queries.div_ceil(n_rows);
    let width = spec.n_heads * d_value;
    let mut z = MatrixMut::new(z, n_queries, width, width);
    let mut outputs = z.tiles(n_rows, d_value).into_iter();
    let mut tasks = Vec::with_capacity(plans.len() * n_strips);
    let mut next_head = 0;
    for (plan, rows) in plans.iter().zip(&mut rows) {
        // Tiles are ordered by head; those of heads that do not run here are skipped.
        let skipped = (plan.head.head_idx - next_head) * n_strips;
        next_head = plan.head.head_idx + 1;
        let outputs = outputs.by_ref().skip(skipped).take(n_strips);
        let parts = strips(plan).zip(rows.chunks_mut(n_rows)).zip(outputs);
        for ((queries, rows), z) in parts {
            tasks.push((plan, Strip { queries, z, rows }));
        }
    }
    let ran: Option<Vec<StripRun>> = tasks
        .into_par_iter()
        .map(|(plan, strip)| plan.strip(strip))
        .collect();
    let ran = ran?;
    let heads = plans.par_iter().zip(rows).zip(ran.par_chunks(n_strips));
    let heads =
        heads.map(|((plan, rows), strips)| (plan.head.head_idx, together(plan, rows, strips)));
    Some(heads.collect())
}

fn together(plan: &HeadPlan<'_>, rows: Vec<RowSummary>, strips: &[StripRun]) -> HeadSummary {
    let visibility = plan.run.visibility;
    let n_keys = visibility.n_keys;
    let mut column_sums = vec![0.0f64; n_keys];
    let mut pooled = Pooled::new(visibility.n_queries, n_keys);
    let mut samples = Vec::with_capacity(plan.sampled.len() * n_keys);
    for strip in strips {
        for (sum, part) in column_sums.iter_mut().zip(&strip.column_sums) {
            *sum += f64::from(*part);
        }
        pooled.add_part(&strip.pooled);
        samples.extend_from_slice(&strip.samples);
    }
    HeadSummary {
        rows,
        column_sums: column_sums.into_iter().map(|sum| sum as f32).collect(),
        k_norms: plan.kv.norms.clone(),
        value_norms: plan.math.value_norms.unwrap_or_default().to_vec(),
        real_keys: visibility.real_keys().map(<[bool]>::to_vec),
        global_tokens: visibility.global_tokens(),
        pooled,
        samples,
    }
}
