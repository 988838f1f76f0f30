//! Judges the attention of one layer: its statistics, and which of its heads are alike.

use attnscope_checks::stats::{
    Alike, HeadEvidence, HeadReport, HeadType, LayerEvidence, LayerReport, Values,
};
use attnscope_compute::attention::{AttentionSpec, Audit, HeadSummary, Sampled};
use attnscope_forward::AttentionRun;
use attnscope_spec::{Exceptions, Stack};
use rayon::prelude::*;

use super::watch::Norms;

/// Pairs of heads with a larger divergence are not alike by any measure.
const MOST_DIVERGENCE: f64 = 0.1;

/// Judges the result of one attention of a layer.
pub(super) fn report(
    stack: Stack,
    layer_idx: usize,
    (spec, exceptions, has_sinks): (&AttentionSpec, &Exceptions, bool),
    mut ran: AttentionRun,
    norms: &Norms,
    is_real: &dyn Fn(usize) -> bool,
) -> LayerReport {
    let alike = alike(&mut ran.heads, &|_| has_sinks);
    let heads: Vec<HeadReport> = ran
        .heads
        .into_par_iter()
        .zip(&ran.head_output_norms)
        .enumerate()
        .map(|(head_idx, (summary, output_norms))| {
            let spec = exceptions.attention_of(head_idx, spec);
            let norms = (output_norms.as_slice(), norms.resid_pre.as_slice());
            head_report(spec, summary, norms, has_sinks, None)
        })
        .collect();
    let real = |norms: &[f32]| -> Vec<f32> {
        let norms = norms.iter().enumerate().filter(|(i, _)| is_real(*i));
        norms.map(|(_, norm)| *norm).collect()
    };
    let evidence = LayerEvidence {
        resid_pre: &real(&norms.resid_pre),
        attn_out: &real(&norms.attn_out),
        mlp_out: &real(&norms.mlp_out),
        resid_post: &real(&norms.resid_post),
        residual: norms.residual.map(|(shape, _)| shape),
    };
    let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
    LayerReport {
        stack,
        layer_idx,
        name: None,
        spec: spec.clone(),
        has_sinks,
        stats: attnscope_checks::stats::of_layer(&of_heads, &evidence),
        heads,
        alike,
        peak: norms.residual.map(|(_, peak)| peak),
    }
    .with_absent()
}

/// Statistics and type of one head. The norms are of the head's output and of the residual before it, empty if unknown.
/// `has_sink` is declared; a sink that the audit found counts as well.
pub(super) fn head_report(
    spec: &AttentionSpec,
    summary: HeadSummary,
    (output_norms, resid_norms): (&[f32], &[f32]),
    has_sink: bool,
    audit: Option<Box<Audit>>,
) -> HeadReport {
    let evidence = HeadEvidence {
        audit: audit.as_deref(),
        summary: &summary,
        output_norms,
        resid_norms,
        scale: spec.scale.factor(spec.d_head),
        d_head: spec.d_head,
        is_cross: spec.is_cross,
        has_sink: has_sink || found_sink(audit.as_deref()),
    };
    let stats = attnscope_checks::stats::of_head(&evidence);
    HeadReport {
        kind: HeadType::of(&stats, &summary),
        stats,
        summary,
        audit,
    }
}

/// Whether the audit found a learned sink that explains both scores and pattern.
pub(super) fn found_sink(audit: Option<&Audit>) -> bool {
    audit.is_some_and(|audit| audit.learned_sink.is_some())
}

/// Compares the sampled rows of all heads and frees them; for a head with a sink, compares what the sink leaves over.
pub(super) fn alike(heads: &mut [HeadSummary], has_sink: &dyn Fn(usize) -> bool) -> Vec<Alike> {
    let n_keys = heads.first().map_or(0, |head| head.column_sums.len());
    let samples: Vec<Sampled> = heads
        .iter_mut()
        .enumerate()
        .map(|(head_idx, head)| {
            let rows = std::mem::take(&mut head.samples);
            Sampled::new(rows, n_keys, !has_sink(head_idx))
        })
        .collect();
    let pairs = (0..samples.len()).flat_map(|second| (0..second).map(move |first| [first, second]));
    let pairs: Vec<[usize; 2]> = pairs.collect();
    let mut alike: Vec<Alike> = pairs
        .into_par_iter()
        .filter_map(|heads| {
            let [first, second] = heads.map(|head_idx| &samples[head_idx]);
            let divergence = first.divergence(second, MOST_DIVERGENCE)?;
            Some(Alike { heads, divergence })
        })
        .collect();
    alike.sort_by(|a, b| a.divergence.total_cmp(&b.divergence));
    alike
}
