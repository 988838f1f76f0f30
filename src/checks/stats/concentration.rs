//! How sharp a head's attention is, and how little gradient saturated rows pass.

use attnscope_compute::attention::{HeadSummary, RowSummary};

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

pub static MAX_PROBABILITY: Statistic = Statistic {
    id: "max_probability",
    title: "max probability",
    unit: "",
    span: Span::Share,
    low: "undecided",
    high: "certain",
    definition: "mean over queries that see at least two keys of the largest probability",
    source: "head confidence, Voita et al. 2019, arXiv 1905.09418 (there without the end-of-sequence token)",
    compute: Compute::Head(max_probability, Gather::Mean),
};

fn max_probability(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.rows_seeing(2), |row| f64::from(row.top1))
}

/// Below this trace of the softmax Jacobian, a row passes almost no gradient to its scores. The value is attnscope's choice.
pub const SATURATED_TRACE: f64 = 1e-3;

pub static SATURATED_ROWS: Statistic = Statistic {
    id: "saturated_rows",
    title: "saturated rows",
    unit: "",
    span: Span::Share,
    low: "all rows can learn",
    high: "no gradient through softmax",
    definition: "share of queries that see at least two keys whose softmax Jacobian has a trace Σp − Σp² below 0.001",
    source: "trace of diag(p) − ppᵀ; the threshold is ours",
    compute: Compute::Head(saturated_rows, Gather::Mean),
};

fn saturated_rows(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.distributions_over(2), is_saturated)
}

/// 1 for a row that passes almost no gradient, 0 for any other, NaN if unknown.
fn is_saturated(row: &RowSummary) -> f64 {
    let trace = f64::from(row.mass) - f64::from(row.sum_p2);
    if trace.is_nan() {
        f64::NAN
    } else {
        f64::from(u8::from(trace < SATURATED_TRACE))
    }
}

/// Share of saturated rows of a head whose rows are distributions; NaN if none sees two keys.
pub fn saturated_share(summary: &HeadSummary) -> f64 {
    let seeing = |row: &&RowSummary| row.is_real && row.n_visible >= 2 && row.mass != 0.0;
    row_mean(summary.rows.iter().filter(seeing), is_saturated)
}

pub static EMPTY_ROWS: Statistic = Statistic {
    id: "empty_rows",
    title: "empty rows",
    unit: "rows",
    span: Span::Positive,
    low: "every query sees a key",
    high: "queries that see nothing",
    definition: "number of queries, padding included, that see no key: their pattern is what the spec says, not a softmax",
    source: "ours",
    compute: Compute::Head(
        |head| {
            let empty = head.summary.rows.iter().filter(|row| row.n_visible == 0);
            empty.count() as f64
        },
        Gather::Max,
    ),
};

pub static TOP_K_RECALL: Statistic = Statistic {
    id: "top_k_recall",
    title: "top-k recall",
    unit: "",
    span: Span::Share,
    low: "attention loses what it looked for",
    high: "the kept keys hold all of full attention",
    definition: "mean over queries that see more keys than sparse attention keeps of the share of full attention's probability, a softmax over all visible keys, that lies on the kept keys; absent where every visible key is kept",
    source: "recall of the keys that an indexer picks, DeepSeek-AI 2025, DeepSeek-V3.2, arXiv 2512.02556",
    compute: Compute::Head(top_k_recall, Gather::Mean),
};

fn top_k_recall(head: &HeadEvidence<'_>) -> f64 {
    let rows = head.rows_seeing(1).filter(|row| !row.recall.is_nan());
    row_mean(rows, |row| f64::from(row.recall))
}

pub static SINK_MASS: Statistic = Statistic {
    id: "sink_mass",
    title: "learned sink",
    unit: "",
    span: Span::Share,
    low: "keys have it all",
    high: "the head does nothing",
    definition: "mean over queries that see a key of the probability that a learned sink takes, or empty places of a window that reaches beyond its picture: 1 − Σp over keys; absent where a head has neither",
    source: "learned sinks as in gpt-oss; Xiao et al. 2023, arXiv 2309.17453",
    compute: Compute::Head(sink_mass, Gather::Mean),
};

fn sink_mass(head: &HeadEvidence<'_>) -> f64 {
    if !head.has_sink {
        return f64::NAN;
    }
    row_mean(head.rows_seeing(1), |row| 1.0 - f64::from(row.mass))
}
