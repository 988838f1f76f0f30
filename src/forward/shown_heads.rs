//! Runs some heads of a block alone, for the head on screen.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::attention::{
    AttentionSpec, GlobalKeys, HeadBias, HeadInput, HeadRows, HeadSummary, RelativeTables, Run,
    Visibility,
};
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, SelfSpec};

use super::attend::attend;
use super::block_weights::AttentionWeights;
use super::bottleneck::read_inside;
use super::conformer::before_attention;
use super::context::BlockContext;
use super::global_tokens::{global_keys, measure_globals, tell_globals};
use super::grid_maps::OtherKeys;
use super::hook::{Hook, Hooks, NoHooks};
use super::indexer::with_picked;
use super::merged::beside_own;
use super::project::project;
use super::rows::read_of;
use super::scratch::AttentionScratch;
use super::value_norms::{tell_norms, value_norms};

/// Runs the self-attention of some heads alone, from a block's input, for the head on screen. All heads use the spec of the
/// first. Reports only row blocks ([`Hooks::blocks`]), value norms and global tokens to `hooks`.
///
/// # Errors
/// As for [`run_block`].
pub fn attend_heads<O: Ops>(
    context: &BlockContext<'_, O>,
    (block, spec): (&BlockSpec, &SelfSpec),
    resid: &O::Buffer,
    heads: Range<usize>,
    hooks: &mut dyn Hooks,
) -> Result<AttendedHeads<O>> {
    let mut s = AttentionScratch::<O>::default();
    let mut read = None;
    if let Some((main, kept)) = read_of(context, block, resid)? {
        s.kept = kept;
        read = Some(main);
    }
    let resid = read.as_ref().unwrap_or(resid);
    let before = before_attention(context, block, resid)?;
    let resid = before.as_ref().unwrap_or(resid);
    let inside = read_inside(context, block, resid)?;
    let resid = inside.as_ref().unwrap_or(resid);
    let n_heads = spec.attention.n_heads;
    let (attention, projections) = spec.of_head(heads.start);
    let weights = AttentionWeights::read(context.shelf(), &block.attn_pre, projections, n_heads)?;
    let other = OtherKeys::of(context, projections, &weights, resid)?;
    let of_other = other.as_ref().map(|keys| keys.context(context));
    let context = of_other.as_ref().unwrap_or(context);
    project(
        context,
        attention,
        projections,
        &weights,
        resid,
        &mut s,
        &mut NoHooks,
    )?;
    let visibility = context.visibility(attention);
    let visibility = with_picked(context, attention, &visibility, 0, &s)?.into_owned();
    s.beside = beside_own(context, block, resid)?;
    // Norms of values cost another matrix product, so they are computed only on request.
    let norms = if hooks.wants(Hook::ValueNorms) {
        let o = context.shelf().linear(&projections.o)?;
        measure_globals(context, attention, &o, &mut s)?;
        value_norms(context, (attention, projections), &o, &s)?
    } else {
        None
    };
    tell_norms(norms.as_deref(), hooks)?;
    tell_globals(context, &s, hooks)?;
    let summaries = attend(
        context,
        attention,
        &weights,
        &visibility,
        heads,
        (norms.as_deref(), hooks.blocks()),
        &mut s,
    )?;
    Ok(AttendedHeads {
        summaries,
        visibility,
        norms,
        sinks: weights.sinks.map(Cow::into_owned),
        bucket_values: weights.bucket_values.map(Cow::into_owned),
        beside: std::mem::take(&mut s.beside),
        bias_factors: std::mem::take(&mut s.bias_factors),
        relative: weights.relative,
        globals: global_keys(context, &s, 0)?,
        q: s.q,
        k: s.k,
        v: s.v,
    })
}

/// Results of some heads that ran alone, with the vectors behind their scores.
pub struct AttendedHeads<O: Ops> {
    pub summaries: Vec<HeadSummary>,
    visibility: Visibility,
    /// [head][key]
    norms: Option<Vec<Vec<f32>>>,
    sinks: Option<Vec<f32>>,
    /// [query, head]
    beside: Vec<f32>,
    bucket_values: Option<Vec<f32>>,
    /// [position, head]
    bias_factors: Vec<f32>,
    relative: Option<RelativeTables>,
    globals: Option<GlobalKeys>,
    q: O::Buffer,
    k: O::Buffer,
    v: O::Buffer,
}

impl<O: Ops> AttendedHeads<O> {
    /// Returns the vectors from which any part of one head's attention map can be computed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn rows(
        &self,
        context: &BlockContext<'_, O>,
        spec: &AttentionSpec,
        head_idx: usize,
    ) -> Result<HeadRows> {
        let of_head = |buffer: &O::Buffer, head_idx: usize| -> Result<Vec<f32>> {
            let host = context.ops.get(buffer)?;
            let first = head_idx * spec.d_head;
            Ok(columns(&host.values, host.width, first, spec.d_head))
        };
        let ops = context.ops;
        let (q, k, v) = (ops.get(&self.q)?, ops.get(&self.k)?, ops.get(&self.v)?);
        let shared = context.bucket_values.as_deref();
        let run = Run {
            spec,
            visibility: &self.visibility,
            heads: head_idx..head_idx + 1,
            sinks: None,
            beside: (!self.beside.is_empty()).then_some(&self.beside[..]),
            bucket_values: self.bucket_values.as_deref().or(shared),
            bias_factors: (!self.bias_factors.is_empty()).then_some(&self.bias_factors[..]),
            relative: self.relative.as_ref(),
            positions: &context.sequence.positions,
            grid: context.sequence.grid(),
            repeats: None,
            value_norms: None,
            globals: None,
            sink: None,
            kept: None,
            pace: context.pace,
        };
        let input = HeadInput {
            q: &q.values,
            k: &k.values,
            v: &v.values,
        };
        Ok(HeadRows {
            q: of_head(&self.q, head_idx)?,                  // [query, d_head]
            k: of_head(&self.k, spec.kv_head_of(head_idx))?, // [key, d_head]
            global_k: self.globals.as_ref().map(|globals| {
                let kv_head_idx = spec.kv_head_of(head_idx);
                let width = spec.n_kv_heads * spec.d_head;
                columns(&globals.k, width, kv_head_idx * spec.d_head, spec.d_head)
            }),
            global_value_norms: self.globals.as_ref().and_then(|globals| {
                let norms = globals.value_norms.as_ref()?;
                norms.get(head_idx).cloned()
            }),
            spec: spec.clone(),
            head_idx,
            visibility: self.visibility.clone(),
            sink: self.sinks.as_ref().map(|sinks| sinks[head_idx]),
            learned: HeadBias::of(&run, input, head_idx),
            positions: context.sequence.positions.clone(),
            value_norms: self.norms.as_ref().map(|all| all[head_idx].clone()),
        })
    }
}
