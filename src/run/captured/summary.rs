//! Summary of one captured head, from whichever of its arrays exist.

use attnscope_compute::attention::{
    AttentionSpec, HeadBias, HeadMath, HeadSummary, Repeats, RowSummary, Scale, SoftmaxAxis, Tally,
    Visibility, finish_row, summarise_pattern, summarise_scores,
};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product, sum_of_squares};

use super::cosines::mean_cosines;

/// One head's arrays.
pub(super) struct HeadArrays<'a> {
    /// [query, key]
    pub pattern: Option<&'a [f32]>,
    pub scores: Option<&'a [f32]>,
    /// [position, d_head]
    pub q: Option<&'a [f32]>,
    pub k: Option<&'a [f32]>,
}

/// What all heads of an attention share.
pub(super) struct Context<'a> {
    pub spec: &'a AttentionSpec,
    pub visibility: &'a Visibility,
    pub repeats: Option<&'a Repeats>,
}

impl Context<'_> {
    pub fn summary(&self, head: &HeadArrays<'_>, head_idx: usize) -> HeadSummary {
        let (n_queries, n_keys) = (self.visibility.n_queries, self.visibility.n_keys);
        let d_head = self.spec.d_head;
        let norms = |values: Option<&[f32]>, n: usize| match values {
            Some(values) => values
                .chunks(d_head)
                .map(|row| sum_of_squares(row).sqrt() as f32)
                .collect(),
            None => vec![f32::NAN; n],
        };
        let (q_norms, k_norms): (Vec<f32>, Vec<f32>) =
            (norms(head.q, n_queries), norms(head.k, n_keys));
        // Captured scores are what enters the softmax: they already include scale, bias and softcap.
        let as_they_are = AttentionSpec {
            scale: Scale::One,
            softmax_axis: SoftmaxAxis::Keys,
            ..self.spec.clone()
        };
        let scaled = AttentionSpec {
            softmax_axis: SoftmaxAxis::Keys,
            ..self.spec.clone()
        };
        let math = HeadMath {
            spec: if head.scores.is_some() {
                &as_they_are
            } else {
                &scaled
            },
            head_idx,
            visibility: self.visibility,
            sink: None,
            k_norms: &k_norms,
            value_norms: None,
            log_sums: None,
            positions: &[],
            learned: &HeadBias::None,
        };
        let products = match (head.scores, head.q, head.k) {
            (Some(scores), ..) => Some(scores.to_vec()),
            (None, Some(q), Some(k)) => {
                let mut products = vec![0.0; n_queries * n_keys];
                let mut out = MatrixMut::new(&mut products, n_queries, n_keys, n_keys);
                let k = Matrix::row_major(k, n_keys, d_head);
                product(
                    &mut out,
                    Matrix::row_major(q, n_queries, d_head),
                    k.transposed(),
                    false,
                    Threads::One,
                );
                Some(products)
            }
            _ => None,
        };
        let cosines = match (head.scores, head.q, head.k) {
            (Some(_), Some(q), Some(k)) => Some(mean_cosines(self.visibility, q, k, d_head)),
            _ => None,
        };
        let mut products = products;
        let mut ours = vec![0.0; n_keys];
        let mut tally = Tally::new(self.visibility, self.repeats);
        for (query_idx, q_norm) in q_norms.iter().enumerate() {
            let span = query_idx * n_keys..(query_idx + 1) * n_keys;
            let mut summary = match &mut products {
                Some(products) => {
                    let row = &mut products[span.clone()];
                    match head.pattern {
                        Some(_) => summarise_scores(&math, query_idx, *q_norm, row),
                        None => finish_row(&math, query_idx, *q_norm, row, &mut ours),
                    }
                }
                None => RowSummary {
                    n_visible: self.visibility.n_visible(query_idx) as u32,
                    ..RowSummary::empty(self.visibility.is_real_query(query_idx))
                },
            };
            let row: &[f32] = match head.pattern {
                Some(pattern) => &pattern[span],
                None => &ours,
            };
            if head.pattern.is_some() {
                summarise_pattern(self.visibility, query_idx, row, &mut summary);
                summary.is_nonfinite |= row.iter().any(|p| !p.is_finite());
            }
            if let Some(cosines) = &cosines {
                summary.cosine = cosines[query_idx];
            }
            if head.k.is_none() {
                (summary.cosine, summary.k_norm_sq_sum, summary.q_norm) =
                    (f32::NAN, f32::NAN, f32::NAN);
            }
            tally.add(summary, row);
        }
        tally.finish(k_norms, self.visibility)
    }
}
