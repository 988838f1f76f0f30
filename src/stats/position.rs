//! Where a head looks, by position alone.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

pub static FIRST_KEY_MASS: Statistic = Statistic {
    id: "first_key_mass",
    title: "first key",
    unit: "",
    span: Span::Share,
    low: "no sink",
    high: "attention sink",
    definition: "mean over queries of the probability given to key 0; depends on the length",
    source: "attention sink, Gu et al. 2024, arXiv 2410.10781",
    compute: Compute::Head(first_key_mass, Gather::Mean),
};

fn first_key_mass(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.rows_seeing(1), |row| f64::from(row.first_mass))
}

pub static PREVIOUS_MASS: Statistic = Statistic {
    id: "previous_mass",
    title: "previous token",
    unit: "",
    span: Span::Share,
    low: "looks elsewhere",
    high: "previous-token head",
    definition: "mean over queries that have a previous key of the probability given to it",
    source: "previous-token head, TransformerLens head detector",
    compute: Compute::Head(previous_mass, Gather::Mean),
};

fn previous_mass(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    let has_previous = head
        .summary
        .rows
        .iter()
        .enumerate()
        .skip(1)
        .map(|(_, row)| row);
    row_mean(
        has_previous.filter(|row| row.is_real && row.n_visible > 0),
        |row| f64::from(row.previous_mass),
    )
}

pub static DIAGONAL_MASS: Statistic = Statistic {
    id: "diagonal_mass",
    title: "own token",
    unit: "",
    span: Span::Share,
    low: "looks elsewhere",
    high: "current-token head",
    definition: "mean over queries of the probability given to the key at their own position",
    source: "diagonal of the pattern",
    compute: Compute::Head(diagonal_mass, Gather::Mean),
};

fn diagonal_mass(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    row_mean(head.rows_seeing(1), |row| f64::from(row.diagonal_mass))
}

pub static MEAN_DISTANCE: Statistic = Statistic {
    id: "mean_distance",
    title: "mean distance",
    unit: "tokens",
    span: Span::Positive,
    low: "local",
    high: "far",
    definition: "mean over queries of Σ p·|query − key|",
    source: "Vig and Belinkov 2019, arXiv 1906.04284 (there weighted over a corpus)",
    compute: Compute::Head(mean_distance, Gather::Mean),
};

fn mean_distance(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    row_mean(head.rows_seeing(1), |row| f64::from(row.distance))
}
