//! How widely a head spreads its attention.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

const ZHAI: &str = "Zhai et al. 2023, arXiv 2303.06296";

pub static ENTROPY: Statistic = Statistic {
    id: "entropy",
    title: "entropy",
    unit: "nats",
    span: Span::Positive,
    low: "one key",
    high: "many keys",
    definition: "mean over queries of −Σ p log p, with 0·log 0 = 0; NaN where a row is no distribution over keys",
    source: ZHAI,
    compute: Compute::Head(entropy, Gather::Mean),
};

fn entropy(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.distributions_over(1), |row| f64::from(row.entropy))
}

pub static RELATIVE: Statistic = Statistic {
    id: "entropy_relative",
    title: "relative entropy",
    unit: "",
    span: Span::Share,
    low: "one key",
    high: "all keys alike",
    definition: "mean over queries that see at least two keys of entropy divided by log(visible keys)",
    source: ZHAI,
    compute: Compute::Head(relative, Gather::Mean),
};

fn relative(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.distributions_over(2), |row| {
        f64::from(row.entropy) / f64::from(row.n_visible).ln()
    })
}

pub static EFFECTIVE_KEYS: Statistic = Statistic {
    id: "effective_keys",
    title: "keys used",
    unit: "keys",
    span: Span::Positive,
    low: "one key",
    high: "many keys",
    definition: "mean over queries of exp(entropy): how many equally weighted keys would have this entropy",
    source: "perplexity of the row; entropy as in Zhai et al. 2023",
    compute: Compute::Head(effective_keys, Gather::Mean),
};

fn effective_keys(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.distributions_over(1), |row| {
        f64::from(row.entropy).exp()
    })
}
