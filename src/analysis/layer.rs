//! What one layer told: statistics per head and for the layer, and what panels draw from.

use super::watch::Norms;
use crate::attention::{AttentionSpec, HeadSummary};
use crate::model::{AttentionRun, Stack};
use crate::stats::{self, HeadEvidence, LayerEvidence, Values};

/// One head of one layer.
#[derive(Debug, Clone)]
pub struct HeadReport {
    pub stats: Values,
    pub summary: HeadSummary,
}

/// One layer, finished.
#[derive(Debug, Clone)]
pub struct LayerReport {
    pub stack: Stack,
    pub layer_idx: usize,
    pub stats: Values,
    pub heads: Vec<HeadReport>,
}

/// Judges what one attention of a layer did.
pub(super) fn report(
    stack: Stack,
    layer_idx: usize,
    spec: &AttentionSpec,
    ran: AttentionRun,
    norms: &Norms,
    is_real: &dyn Fn(usize) -> bool,
) -> LayerReport {
    let heads: Vec<HeadReport> = ran
        .heads
        .into_iter()
        .zip(&ran.head_output_norms)
        .map(|(summary, output_norms)| {
            let evidence = HeadEvidence {
                summary: &summary,
                output_norms,
                resid_norms: &norms.resid_pre,
                scale: spec.scale.factor(spec.d_head),
                d_head: spec.d_head,
                is_cross: spec.is_cross,
            };
            HeadReport {
                stats: stats::of_head(&evidence),
                summary,
            }
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
    };
    let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
    LayerReport {
        stack,
        layer_idx,
        stats: stats::of_layer(&of_heads, &evidence),
        heads,
    }
}
