//! Attention between two sentences: one head, with rows finished by the reference definition that faster paths must match.

use attnscope_compute::attention::{
    AttentionSpec, HeadMath, HeadSummary, LogSumExp, LogSums, SoftmaxAxis, Tally, Visibility,
    finish_row,
};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product, rms_norm, sum_of_squares};
use attnscope_spec::Ablation;

use super::sentence::Sentence;
use super::spec::AlignSpec;

/// Epsilon added to the mean square, as in RMS norms without weights.
const EPS: f32 = 1e-6;

/// Result of attending once.
pub(super) struct Attended {
    pub summary: HeadSummary,
    pub visibility: Visibility,
    /// [query, key]
    pub scores: Vec<f32>,
    pub pattern: Vec<f32>,
    pub cosines: Vec<f32>,
    /// [query, width]
    pub output: Vec<f32>,
}

/// Computes scores, pattern and output. The values are the key rows as the table stores them, without norm.
pub(super) fn attend(queries: &Sentence, keys: &Sentence, align: &AlignSpec) -> Attended {
    let width = queries.width;
    let spec = &align.attention;
    let (n_queries, n_keys) = (queries.words.len(), keys.words.len());
    let visibility = Visibility::of_cross(spec.mask, (n_queries, None), (n_keys, None));
    let normed = |sentence: &Sentence| {
        if align.qk_norm {
            let mut to = vec![0.0; sentence.vectors.len()];
            rms_norm(&sentence.vectors, width, EPS, None, &mut to);
            to
        } else {
            sentence.vectors.clone()
        }
    };
    let (q, k) = (normed(queries), normed(keys)); // [word, width]
    let norms = |rows: &[f32]| rows.chunks(width).map(length).collect::<Vec<f32>>();
    let (q_norms, k_norms) = (norms(&q), norms(&k));

    let mut scores = vec![0.0; n_queries * n_keys];
    let mut out = MatrixMut::new(&mut scores, n_queries, n_keys, n_keys);
    let (q, k) = (
        Matrix::row_major(&q, n_queries, width),
        Matrix::row_major(&k, n_keys, width),
    );
    product(&mut out, q, k.transposed(), false, Threads::One); // [query, key]
    let lengths = q_norms
        .iter()
        .flat_map(|q| k_norms.iter().map(move |k| q * k));
    let cosines = scores.iter().zip(lengths).map(|(s, both)| s / both);
    let cosines: Vec<f32> = cosines.collect();

    let sums = column_sums(spec, &visibility, &k_norms, &scores);
    let math = HeadMath {
        value_norms: None,
        log_sums: sums.as_deref().map(LogSums::OverQueries),
        ..HeadMath::plain(spec, &visibility, &k_norms)
    };
    let mut pattern = vec![0.0; n_queries * n_keys];
    let mut tally = Tally::new(&visibility, None);
    let rows = scores.chunks_mut(n_keys).zip(pattern.chunks_mut(n_keys));
    for ((query_idx, (scores, pattern)), q_norm) in rows.enumerate().zip(&q_norms) {
        let summary = finish_row(&math, query_idx, *q_norm, scores, pattern);
        tally.add(summary, pattern);
    }

    let mut output = vec![0.0; n_queries * width];
    let mut out = MatrixMut::new(&mut output, n_queries, width, width);
    let (p, v) = (
        Matrix::row_major(&pattern, n_queries, n_keys),
        Matrix::row_major(&keys.vectors, n_keys, width),
    );
    product(&mut out, p, v, false, Threads::One); // [query, width]
    ablate(&mut output, width, align.ablation);
    Attended {
        summary: tally.finish(k_norms, &visibility),
        visibility,
        scores,
        pattern,
        cosines,
        output,
    }
}

/// log Σ e^s of each key's column, if the softmax runs over queries. // products: [query, key] → [key]
fn column_sums(
    spec: &AttentionSpec,
    visibility: &Visibility,
    k_norms: &[f32],
    products: &[f32],
) -> Option<Vec<f32>> {
    if spec.softmax_axis != SoftmaxAxis::Queries {
        return None;
    }
    let over_keys = AttentionSpec {
        softmax_axis: SoftmaxAxis::Keys,
        ..spec.clone()
    };
    let math = HeadMath::plain(&over_keys, visibility, k_norms);
    let n_keys = k_norms.len();
    let mut sums = LogSumExp::new(n_keys);
    let mut pattern = vec![0.0; n_keys];
    for (query_idx, row) in products.chunks(n_keys).enumerate() {
        let mut scores = row.to_vec();
        finish_row(&math, query_idx, 1.0, &mut scores, &mut pattern);
        sums.add(&scores);
    }
    Some(sums.finish())
}

fn ablate(output: &mut [f32], width: usize, ablation: Option<Ablation>) {
    let Some(ablation) = ablation else { return };
    let mut mean = vec![0.0f64; width];
    if ablation == Ablation::Mean {
        let n = (output.len() / width) as f64;
        for row in output.chunks(width) {
            mean.iter_mut()
                .zip(row)
                .for_each(|(sum, v)| *sum += f64::from(*v) / n);
        }
    }
    for row in output.chunks_mut(width) {
        row.iter_mut()
            .zip(&mean)
            .for_each(|(to, mean)| *to = *mean as f32);
    }
}

pub(super) fn length(row: &[f32]) -> f32 {
    sum_of_squares(row).sqrt() as f32
}
