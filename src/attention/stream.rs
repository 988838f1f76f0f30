//! All heads of one attention, streamed: strips of queries in parallel, put together in their order.
//!
//! [`run_head`] says what every number is; this gives the same numbers on vectorised kernels, in memory that does not grow with
//! heads × length².

use std::ops::Range;

use rayon::prelude::*;

use super::block::{Head, HeadInput, HeadRun, Run, run_head};
use super::pooled::Pooled;
use super::row::HeadMath;
use super::row_bias::RowBias;
use super::samples::sampled_queries;
use super::spec::{Bias, SoftmaxAxis};
use super::strip::{HeadPlan, KvHead, StripRun, block_rows};
use super::summary::HeadSummary;
use crate::kernels::simd::{ColumnLogSums, Keys, Level, Values};
use crate::kernels::sum_of_squares;

/// Strips of one head at most: each holds a row of column sums until they are put together.
const MOST_STRIPS: usize = 16;
/// Packed keys and values that are held at once.
const PACKED_BYTES: usize = 32 << 20;

/// Runs the heads that `run` asks for, with one level's instructions; `None` when it was stopped.
///
/// The results are the same bits for any number of threads.
pub fn stream_heads(run: &Run<'_>, input: HeadInput<'_>, level: Level) -> Option<Vec<HeadRun>> {
    let spec = run.spec;
    let per_kv_head = spec.n_heads / spec.n_kv_heads;
    let n_keys = run.visibility.n_keys;
    let bytes = Keys::bytes(n_keys, spec.d_head) + Keys::bytes(n_keys, spec.d_value);
    let n_at_once = (PACKED_BYTES / bytes.max(1)).max(1) * per_kv_head;
    let mut all = Vec::with_capacity(run.heads.len());
    let mut start = run.heads.start;
    while start < run.heads.end {
        // Whole groups that share their keys, so that none is packed twice.
        let end = ((start / per_kv_head * per_kv_head) + n_at_once).min(run.heads.end);
        all.extend(some_heads(run, input, level, start..end)?);
        start = end;
    }
    Some(all)
}

/// Runs some heads at once.
fn some_heads(
    run: &Run<'_>,
    input: HeadInput<'_>,
    level: Level,
    heads: Range<usize>,
) -> Option<Vec<HeadRun>> {
    let spec = run.spec;
    let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
    let visible = run.visibility.real_keys().map(|real| {
        let mut flags: Vec<f32> = real.iter().map(|r| f32::from(u8::from(*r))).collect();
        flags.resize(n_keys + MARGIN, 0.0);
        flags
    });
    let first_kv = spec.kv_head_of(heads.start);
    let kv_heads = first_kv..spec.kv_head_of(heads.end - 1) + 1;
    let packed: Vec<Option<KvHead>> = kv_heads
        .into_par_iter()
        .map(|kv_head_idx| KvHead::of(run, input, level, kv_head_idx))
        .collect();
    let biases = |head_idx: usize| match (&spec.bias, run.bucket_values) {
        (Bias::Buckets(buckets), Some(values)) => {
            buckets.by_distance(values, spec.n_heads, head_idx, n_queries, n_keys)
        }
        _ => Vec::new(),
    };
    let biases: Vec<Vec<f32>> = heads.clone().map(biases).collect();
    let sampled = sampled_queries(n_queries, n_keys);
    let mut plans = Vec::new();
    for (nth, head_idx) in heads.clone().enumerate() {
        let head = Head::new(spec, input, head_idx);
        let Some(kv) = &packed[spec.kv_head_of(head_idx) - first_kv] else {
            continue;
        };
        let math = HeadMath {
            spec,
            head_idx,
            visibility: run.visibility,
            sink: run.sinks.map(|sinks| sinks[head_idx]),
            k_norms: &kv.norms,
            column_log_sum_exp: None,
            positions: run.positions,
            bias_by_distance: &biases[nth],
        };
        plans.push(HeadPlan {
            run,
            level,
            head,
            kv,
            bias: RowBias::of(&math),
            math,
            visible: visible.as_deref(),
            column_log_sums: Vec::new(),
            sampled: &sampled,
        });
    }
    if spec.softmax_axis == SoftmaxAxis::Queries {
        sum_columns(&mut plans)?;
    }
    let mut ran = run_plans(&plans)?.into_iter().peekable();
    // A head with a NaN or an infinity in its values is left to the definition: times a weight of 0 it is not 0.
    heads
        .map(|head_idx| match ran.next_if(|(of, _)| *of == head_idx) {
            Some((_, ran)) => Some(ran),
            None => run_head(run, input, head_idx),
        })
        .collect()
}

/// Values beyond the last key, so that whole vectors can be read there.
const MARGIN: usize = 64;

/// The strips of a head: a number that depends on its lengths alone.
fn strips(plan: &HeadPlan<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
    let n_queries = plan.run.visibility.n_queries;
    let n_rows = block_rows(plan.kv.keys.width());
    let n_blocks = n_queries.div_ceil(n_rows);
    let n = n_blocks.div_ceil(MOST_STRIPS).max(1) * n_rows;
    (0..n_queries)
        .step_by(n)
        .map(move |start| start..(start + n).min(n_queries))
}

/// Every strip of every head, in order.
fn tasks(plans: &[HeadPlan<'_>]) -> Vec<(usize, Range<usize>)> {
    let of_plan = |(nth, plan)| strips(plan).map(move |strip| (nth, strip));
    plans.iter().enumerate().flat_map(of_plan).collect()
}

/// Fills each plan's log Σ over queries.
fn sum_columns(plans: &mut [HeadPlan<'_>]) -> Option<()> {
    let sums: Option<Vec<(usize, ColumnLogSums)>> = tasks(plans)
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
    }
    Some(())
}

/// Runs every strip, and puts each head's together.
fn run_plans(plans: &[HeadPlan<'_>]) -> Option<Vec<(usize, HeadRun)>> {
    let strips: Option<Vec<(usize, StripRun)>> = tasks(plans)
        .into_par_iter()
        .map(|(nth, strip)| Some((nth, plans[nth].strip(strip)?)))
        .collect();
    let mut strips = strips?.into_iter().peekable();
    let mut heads = Vec::with_capacity(plans.len());
    for (nth, plan) in plans.iter().enumerate() {
        let of_head = std::iter::from_fn(|| strips.next_if(|(of, _)| *of == nth));
        let head = together(plan, of_head.map(|(_, strip)| strip));
        heads.push((plan.head.head_idx, head));
    }
    Some(heads)
}

fn together(plan: &HeadPlan<'_>, strips: impl Iterator<Item = StripRun>) -> HeadRun {
    let visibility = plan.run.visibility;
    let (n_queries, n_keys) = (visibility.n_queries, visibility.n_keys);
    let mut z = Vec::with_capacity(n_queries * plan.math.spec.d_value);
    let mut rows = Vec::with_capacity(n_queries);
    let mut column_sums = vec![0.0f64; n_keys];
    let mut pooled = Pooled::new(n_queries, n_keys);
    let mut samples = Vec::with_capacity(plan.sampled.len() * n_keys);
    for strip in strips {
        z.extend_from_slice(&strip.z);
        rows.extend(strip.rows);
        for (sum, part) in column_sums.iter_mut().zip(&strip.column_sums) {
            *sum += f64::from(*part);
        }
        pooled.add_all(&strip.pooled);
        samples.extend(strip.samples);
    }
    HeadRun {
        z,
        summary: HeadSummary {
            rows,
            column_sums: column_sums.into_iter().map(|sum| sum as f32).collect(),
            k_norms: plan.kv.norms.clone(),
            real_keys: visibility.real_keys().map(<[bool]>::to_vec),
            pooled,
            samples,
        },
    }
}

impl KvHead {
    /// Packs one kv head; `None` where a value is not finite.
    fn of(run: &Run<'_>, input: HeadInput<'_>, level: Level, kv_head_idx: usize) -> Option<Self> {
        let spec = run.spec;
        let n_keys = run.visibility.n_keys;
        let head = Head::new(spec, input, kv_head_idx * (spec.n_heads / spec.n_kv_heads));
        if !head.has_finite_values(n_keys) {
            return None;
        }
        let norms: Vec<f32> = (0..n_keys)
            .map(|key_idx| sum_of_squares(head.key(key_idx)).sqrt() as f32)
            .collect();
        let (mut keys, mut values) = (Keys::default(), Values::default());
        let (from, stride) = head.keys_from();
        keys.pack(level, from, stride, n_keys, spec.d_head);
        let (from, stride) = head.values_from();
        values.pack(level, from, stride, n_keys, spec.d_value);
        let mut inverse_norms: Vec<f32> = norms.iter().map(|norm| 1.0 / norm).collect();
        inverse_norms.resize(keys.width(), 0.0);
        let mut squares_before = Vec::with_capacity(n_keys + 1);
        let mut sum = 0.0;
        squares_before.push(sum);
        for (key_idx, norm) in norms.iter().enumerate() {
            if run.visibility.is_real_key(key_idx) {
                sum += f64::from(*norm) * f64::from(*norm);
            }
            squares_before.push(sum);
        }
        Some(Self {
            keys,
            values,
            norms,
            inverse_norms,
            squares_before,
        })
    }
}
