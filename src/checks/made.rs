//! Layers built from given scores, for tests of checks.

use attnscope_compute::attention::{AttentionSpec, HeadMath, Tally, Visibility, finish_row};
use attnscope_spec::Stack;

use crate::stats;
use crate::stats::{HeadEvidence, HeadReport, HeadType, LayerEvidence, LayerReport, Values};

/// A causal layer whose heads have these scores, with queries and keys of equal length. // scores: [head][query, key]
pub fn layer(spec: AttentionSpec, scores: &[Vec<Vec<f32>>], norm: f32) -> LayerReport {
    let n = scores[0].len();
    let visibility = Visibility::of_self(spec.mask, n, None);
    let k_norms = vec![norm; n];
    let factor = spec.scale.factor(spec.d_head);
    let heads = scores.iter().map(|rows| {
        let math = HeadMath::plain(&spec, &visibility, &k_norms);
        let mut tally = Tally::new(&visibility, None);
        for (query_idx, row) in rows.iter().enumerate() {
            let mut products: Vec<f32> = row.iter().map(|score| score / factor).collect();
            let mut pattern = vec![0.0; n];
            let summary = finish_row(&math, query_idx, norm, &mut products, &mut pattern);
            tally.add(summary, &pattern);
        }
        let summary = tally.finish(k_norms.clone(), &visibility);
        let evidence = HeadEvidence {
            audit: None,
            summary: &summary,
            output_norms: &[],
            resid_norms: &[],
            scale: factor,
            d_head: spec.d_head,
            is_cross: spec.is_cross,
            has_sink: false,
        };
        let stats = stats::of_head(&evidence);
        HeadReport {
            kind: HeadType::of(&stats, &summary),
            stats,
            summary,
            audit: None,
        }
    });
    let heads: Vec<HeadReport> = heads.collect();
    let of_heads: Vec<Values> = heads.iter().map(|head| head.stats.clone()).collect();
    let evidence = LayerEvidence::default();
    LayerReport {
        stack: Stack::Only,
        layer_idx: 0,
        name: None,
        has_sinks: false,
        stats: stats::of_layer(&of_heads, &evidence),
        spec,
        heads,
        alike: Vec::new(),
        peak: None,
    }
    .with_absent()
}

/// Scores with which every query prefers one key by `by`; `key_of` chooses it among the keys that the query sees.
pub fn preferring(n: usize, by: f32, key_of: impl Fn(usize) -> usize) -> Vec<Vec<f32>> {
    let row = |query_idx: usize| {
        (0..n)
            .map(|key_idx| {
                if key_idx == key_of(query_idx) {
                    by
                } else {
                    0.0
                }
            })
            .collect()
    };
    (0..n).map(row).collect()
}
