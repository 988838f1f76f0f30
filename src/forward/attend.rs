//! Attention from queries, keys and values, and its output projection.

use std::ops::Range;

use attnscope_compute::attention::{
    AttentionSpec, BlockSink, HeadSummary, Repeats, Run, Visibility,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::HeadExperts;

use super::block_weights::AttentionWeights;
use super::context::BlockContext;
use super::copies::attend_copies;
use super::difference::difference_of;
use super::emit::offer;
use super::empty_places::attend_beside_empty;
use super::global_tokens::global_keys;
use super::head_experts::map_by_experts;
use super::hook::{Hook, Hooks};
use super::indexer::with_picked;
use super::keys_and_values::KeysAndValues;
use super::scratch::AttentionScratch;
use super::steps::normed_in_place;

/// Per-head results of one attention, besides its output.
#[derive(Debug)]
pub struct AttentionRun {
    /// One per head; empty when copies run.
    pub heads: Vec<HeadSummary>,
    /// Norm of each head's own output. // [head, position]
    pub head_output_norms: Vec<Vec<f32>>,
}

/// Computes scores, pattern and Σ p·v of some heads; `norms` come from [`value_norms`](super::value_norms::value_norms).
pub(super) fn attend<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &AttentionSpec,
    weights: &AttentionWeights<'_, O>,
    visibility: &Visibility,
    heads: Range<usize>,
    (norms, sink): (Option<&[Vec<f32>]>, Option<&dyn BlockSink>),
    s: &mut AttentionScratch<O>,
) -> Result<Vec<HeadSummary>> {
    if let Some(copies) = context.copies {
        attend_copies(context, spec, weights, (visibility, heads), copies, s)?;
        return Ok(Vec::new());
    }
    let repeats = (!spec.is_cross)
        .then(|| Repeats::of_real(&context.sequence.tokens, context.sequence.real.as_deref()));
    let visibility = &*with_picked(context, spec, visibility, 0, s)?;
    let shared = context.bucket_values.as_deref();
    let globals = global_keys(context, s, 0)?;
    let run = Run {
        spec,
        repeats: repeats.as_ref(),
        value_norms: norms,
        visibility,
        heads,
        sinks: weights.sinks.as_deref(),
        beside: (!s.beside.is_empty()).then_some(&s.beside[..]),
        bucket_values: weights.bucket_values.as_deref().or(shared),
        bias_factors: (!s.bias_factors.is_empty()).then_some(&s.bias_factors[..]),
        relative: weights.relative.as_ref(),
        positions: &context.sequence.positions,
        grid: context.sequence.grid(),
        globals: globals.as_ref(),
        sink,
        kept: s.past.as_ref().and_then(KeysAndValues::packed),
        pace: context.pace,
    };
    attend_beside_empty(context.ops, &run, [&s.q, &s.k, &s.v], &mut s.z) // [position, n_heads · d_value]
}

/// Applies the output projection to all heads, after what combines their outputs.
pub(super) fn output<O: Ops>(
    context: &BlockContext<'_, O>,
    (n_heads, weights, experts): (usize, &AttentionWeights<'_, O>, Option<&HeadExperts>),
    heads: Vec<HeadSummary>,
    o: &O::Linear<'_>,
    s: &mut AttentionScratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    offer(ops, hooks, Hook::Z, &mut s.z)?;
    difference_of(ops, weights.difference, n_heads, &mut s.z)?;
    let mut spare = O::Buffer::default();
    normed_in_place(ops, weights.z_norm.as_ref(), &mut s.z, &mut spare)?;
    if let Some(experts) = experts {
        let from = (&s.z, &s.chosen[..]);
        let head_output_norms = map_by_experts(context, (experts, n_heads), from, &mut s.out)?;
        return Ok(AttentionRun {
            heads,
            head_output_norms,
        });
    }
    let head_output_norms = match context.copies {
        None => ops.head_output_norms((&s.z, n_heads), o, n_heads, context.pace)?,
        Some(_) => Vec::new(),
    };
    ops.linear(&s.z, o, &mut s.out, context.pace)?; // [position, d_model]
    Ok(AttentionRun {
        heads,
        head_output_norms,
    })
}
