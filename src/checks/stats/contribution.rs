//! The contribution of each key: attention weighted by the length of the output that its value writes.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

const SOURCE: &str = "α·‖v W_O‖, Kobayashi et al. 2020, arXiv 2004.10102";

pub static FIRST: Statistic = Statistic {
    id: "contribution_first",
    title: "first key's contribution",
    unit: "",
    span: Span::Share,
    low: "a sink writes nothing",
    high: "the first key is what is written",
    definition: "share of Σ p·‖v W_O‖ over all pairs that lies on the first key that is not padding; beside first_key_mass it says whether \
                 what a sink receives does anything",
    source: SOURCE,
    compute: Compute::Head(first, Gather::Mean),
};

fn first(head: &HeadEvidence<'_>) -> f64 {
    let summary = head.summary;
    let first_idx = match &summary.real_keys {
        Some(real) => real.iter().position(|is_real| *is_real),
        None => Some(0),
    };
    let norm = first_idx.and_then(|key_idx| summary.value_norms.get(key_idx));
    let Some(norm) = norm.map(|norm| f64::from(*norm)) else {
        return f64::NAN;
    };
    let (of_first, of_all) = head.rows_seeing(1).fold((0.0, 0.0), |(first, all), row| {
        let carried = f64::from(row.first_mass) * norm;
        (first + carried, all + f64::from(row.contribution))
    });
    of_first / of_all
}

pub static ENTROPY: Statistic = Statistic {
    id: "contribution_entropy",
    title: "contribution entropy",
    unit: "nats",
    span: Span::Positive,
    low: "one key is written",
    high: "many keys are written",
    definition: "mean over queries of the entropy of the keys' shares of Σ p·‖v W_O‖",
    source: SOURCE,
    compute: Compute::Head(
        |head| {
            row_mean(head.rows_seeing(1), |row| {
                f64::from(row.contribution_entropy)
            })
        },
        Gather::Mean,
    ),
};

pub static TOTAL: Statistic = Statistic {
    id: "contribution_total",
    title: "contribution",
    unit: "",
    span: Span::Positive,
    low: "carries nothing",
    high: "carries much",
    definition: "mean over queries of Σ p·‖v W_O‖: how long what the head adds would be if nothing cancelled; head_output_norm is how long \
                 it is",
    source: SOURCE,
    compute: Compute::Head(
        |head| row_mean(head.rows_seeing(1), |row| f64::from(row.contribution)),
        Gather::Mean,
    ),
};
