//! The scores, as they enter the softmax.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, over_pairs, row_mean};

const SCORES: &str = "scores after scale, softcap and bias, over visible pairs";

pub static MEAN: Statistic = Statistic {
    id: "score_mean",
    title: "score mean",
    unit: "",
    span: Span::Any,
    low: "negative scores",
    high: "positive scores",
    definition: "mean score over visible pairs",
    source: SCORES,
    compute: Compute::Head(|head| moments(head).0, Gather::Mean),
};

pub static STD: Statistic = Statistic {
    id: "score_std",
    title: "score std",
    unit: "",
    span: Span::Positive,
    low: "flat",
    high: "spread out",
    definition: "population standard deviation of the score over visible pairs",
    source: SCORES,
    compute: Compute::Head(|head| moments(head).1.sqrt(), Gather::Mean),
};

fn moments(head: &HeadEvidence<'_>) -> (f64, f64) {
    over_pairs(head.rows_seeing(1), |row| (row.score_mean, row.score_var))
}

pub static MIN: Statistic = Statistic {
    id: "score_min",
    title: "score min",
    unit: "",
    span: Span::Any,
    low: "very negative",
    high: "never low",
    definition: "smallest score of a visible pair",
    source: SCORES,
    compute: Compute::Head(
        |head| {
            Gather::Min.over(
                head.rows_seeing(1)
                    .map(|row| finite_or_nan(row.is_nonfinite, row.score_min)),
            )
        },
        Gather::Min,
    ),
};

pub static MAX: Statistic = Statistic {
    id: "score_max",
    title: "score max",
    unit: "",
    span: Span::Any,
    low: "never high",
    high: "very large",
    definition: "largest score of a visible pair",
    source: SCORES,
    compute: Compute::Head(
        |head| {
            Gather::Max.over(
                head.rows_seeing(1)
                    .map(|row| finite_or_nan(row.is_nonfinite, row.score_max)),
            )
        },
        Gather::Max,
    ),
};

/// Extremes ignore NaN when they are computed, so the extreme of a row with a NaN is not reliable.
fn finite_or_nan(is_nonfinite: bool, value: f32) -> f64 {
    if is_nonfinite && value.is_finite() {
        f64::NAN
    } else {
        f64::from(value)
    }
}

pub static ROW_NORM: Statistic = Statistic {
    id: "score_row_norm",
    title: "score row norm",
    unit: "",
    span: Span::Positive,
    low: "near uniform",
    high: "may collapse",
    definition: "mean over queries of √Σ s² over their visible keys; grows with their number",
    source: SCORES,
    compute: Compute::Head(
        |head| row_mean(head.rows_seeing(1), |row| f64::from(row.score_norm)),
        Gather::Mean,
    ),
};

pub static ROW_VARIANCE: Statistic = Statistic {
    id: "score_row_variance",
    title: "score row variance",
    unit: "",
    span: Span::Positive,
    low: "near uniform",
    high: "may collapse",
    definition: "mean over queries that see at least two keys of the population variance of their scores",
    source: "tied to entropy collapse by Hong and Lee, EMNLP 2025",
    compute: Compute::Head(
        |head| row_mean(head.rows_seeing(2), |row| f64::from(row.score_var)),
        Gather::Mean,
    ),
};

pub static MAX_ABS: Statistic = Statistic {
    id: "max_abs_score",
    title: "max |score|",
    unit: "",
    span: Span::Positive,
    low: "tame",
    high: "exploding",
    definition: "largest |scale·q·k| of a visible pair, before softcap and bias",
    source: "max attention logit, Kimi K2, arXiv 2507.20534 (there signed)",
    compute: Compute::Head(max_abs, Gather::Max),
};

fn max_abs(head: &HeadEvidence<'_>) -> f64 {
    let largest = |row: &attnscope_compute::attention::RowSummary| {
        let largest = row.raw_max.abs().max(row.raw_min.abs());
        finite_or_nan(row.is_nonfinite, largest)
    };
    Gather::Max.over(head.rows_seeing(1).map(largest))
}
