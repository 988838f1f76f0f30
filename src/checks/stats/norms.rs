//! Lengths and angles of queries and keys, and the size of a head's output.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, mean, row_mean};

const GEOMETRY: &str = "score = scale·‖q‖·‖k‖·cos; after rope and QK-norm";

pub static Q_NORM: Statistic = Statistic {
    id: "q_norm",
    title: "‖q‖",
    unit: "",
    span: Span::Positive,
    low: "short",
    high: "long",
    definition: "mean over queries of ‖q‖",
    source: GEOMETRY,
    compute: Compute::Head(
        |head| row_mean(real_rows(head), |row| f64::from(row.q_norm)),
        Gather::Mean,
    ),
};

fn real_rows<'a>(
    head: &HeadEvidence<'a>,
) -> impl Iterator<Item = &'a attnscope_compute::attention::RowSummary> {
    head.summary.rows.iter().filter(|row| row.is_real)
}

pub static K_NORM: Statistic = Statistic {
    id: "k_norm",
    title: "‖k‖",
    unit: "",
    span: Span::Positive,
    low: "short",
    high: "long",
    definition: "mean over keys that are not padding of ‖k‖",
    source: GEOMETRY,
    compute: Compute::Head(k_norm, Gather::Mean),
};

fn k_norm(head: &HeadEvidence<'_>) -> f64 {
    let real = |key_idx: usize| {
        let keys = head.summary.real_keys.as_ref();
        keys.is_none_or(|real| real[key_idx])
    };
    let norms = head.summary.k_norms.iter().enumerate();
    let norms = norms.filter(|(key_idx, _)| real(*key_idx));
    mean(norms.map(|(_, norm)| f64::from(*norm)))
}

pub static COSINE: Statistic = Statistic {
    id: "qk_cosine",
    title: "cos(q, k)",
    unit: "",
    span: Span::Signed,
    low: "opposed",
    high: "aligned",
    definition: "mean over visible pairs of the cosine of query and key",
    source: GEOMETRY,
    compute: Compute::Head(cosine, Gather::Mean),
};

fn cosine(head: &HeadEvidence<'_>) -> f64 {
    let (n, sum) = head.rows_seeing(1).fold((0.0, 0.0), |(n, sum), row| {
        let n_visible = f64::from(row.n_visible);
        (n + n_visible, sum + n_visible * f64::from(row.cosine))
    });
    sum / n
}

pub static OUTPUT_NORM: Statistic = Statistic {
    id: "head_output_norm",
    title: "head output",
    unit: "",
    span: Span::Positive,
    low: "writes nothing",
    high: "writes much",
    definition: "mean over queries of ‖W_O z‖ of this head alone, before any norm on the branch",
    source: "Kobayashi et al. 2020, arXiv 2004.10102, summed over keys",
    compute: Compute::Head(output_norm, Gather::Mean),
};

/// Norms of real queries alone. // norms: [query]
fn of_real<'a>(norms: &'a [f32], head: &HeadEvidence<'a>) -> impl Iterator<Item = f64> + use<'a> {
    let pairs = norms.iter().zip(&head.summary.rows);
    pairs
        .filter(|(_, row)| row.is_real)
        .map(|(norm, _)| f64::from(*norm))
}

fn output_norm(head: &HeadEvidence<'_>) -> f64 {
    mean(of_real(head.output_norms, head))
}

pub static OUTPUT_SHARE: Statistic = Statistic {
    id: "head_output_share",
    title: "output / residual",
    unit: "",
    span: Span::Positive,
    low: "writes nothing",
    high: "dominates",
    definition: "mean over queries of ‖W_O z‖ of this head divided by ‖residual‖ before the block",
    source: "Kobayashi et al. 2020, arXiv 2004.10102, summed over keys",
    compute: Compute::Head(output_share, Gather::Mean),
};

fn output_share(head: &HeadEvidence<'_>) -> f64 {
    let pairs = of_real(head.output_norms, head).zip(of_real(head.resid_norms, head));
    mean(pairs.map(|(out, resid)| out / resid))
}
