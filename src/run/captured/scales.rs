//! The factor between recorded queries and keys and the scores made of them.

use attnscope_compute::attention::{
    AttentionSpec, RecordedCall, ScaledHead, ScoreScale, Visibility,
};

use super::heads::Heads;

/// What a factor may leave of the scores, as a share of them, beside the rounding of the trace's dtype.
const SCALE_REST: f64 = 1e-3;

/// What is known of the scores of one layer.
pub(super) struct Scaled<'a> {
    pub scores: &'a Heads,
    /// Queries, keys and values, as far as they were recorded.
    pub vectors: [Option<&'a Heads>; 3],
    /// Width of the residual, if it was recorded.
    pub d_model: Option<usize>,
    pub call: &'a RecordedCall,
}

impl Scaled<'_> {
    /// The factor: fitted, or else as the call stated it.
    pub fn scale(
        &self,
        spec: &AttentionSpec,
        visibility: &Visibility,
        row_tolerance: f64,
    ) -> Option<ScoreScale> {
        let [q, k, v] = self.vectors;
        let (scores, d_model) = (self.scores, self.d_model);
        let n_heads = scores.dims[0];
        let v = v.filter(|v| n_heads.is_multiple_of(v.dims[0]) && v.dims[1] == scores.dims[2]);
        let v_of = |head_idx: usize, v: &Heads| head_idx / (n_heads / v.dims[0]);
        if let (Some(q), Some(k)) = (q, k) {
            let d_head = q.dims[2];
            let v = v.filter(|v| v.dims[2] == d_head);
            let heads: Vec<ScaledHead<'_>> = (0..n_heads)
                .map(|head_idx| ScaledHead {
                    scores: scores.head(head_idx),
                    q: q.head(head_idx),
                    k: k.head(spec.kv_head_of(head_idx)),
                    v: v.map(|v| v.head(v_of(head_idx, v))),
                })
                .collect();
            let tolerance = SCALE_REST.max(row_tolerance);
            let fitted = ScoreScale::of(&heads, visibility, d_head, d_model, tolerance);
            let stated = |factor| ScoreScale::stated(factor, &heads, visibility, d_head, d_model);
            return fitted.or_else(|| self.call.scale.map(stated));
        }
        let factor = self.call.scale?;
        let of_model = d_model.filter(|d_model| d_model.is_multiple_of(n_heads));
        let d_head = self.call.d_head.or(v.map(|v| v.dims[2]));
        let d_head = d_head.or(of_model.map(|d_model| d_model / n_heads))?;
        Some(ScoreScale {
            factor,
            d_head,
            n_heads,
            d_model: d_model.unwrap_or(n_heads * d_head),
            norms: None,
            is_fitted: false,
        })
    }
}
