//! Where a head looks, by position only.

use attnscope_compute::attention::{HeadSummary, RowSummary};

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

pub static FIRST_KEY_MASS: Statistic = Statistic {
    id: "first_key_mass",
    title: "first key",
    unit: "",
    span: Span::Share,
    low: "no sink",
    high: "attention sink",
    definition: "mean over queries of the probability given to the first key that is not padding; depends on the length",
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
    definition: "mean over queries that have a previous token of the probability given to it; padding is not a token",
    source: "previous-token head, TransformerLens head detector",
    compute: Compute::Head(previous_mass, Gather::Mean),
};

fn previous_mass(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    row_mean(has_previous(head.summary), |row| {
        f64::from(row.previous_mass)
    })
}

/// Rows of queries that have a previous token and see a key.
pub(super) fn has_previous(summary: &HeadSummary) -> impl Iterator<Item = &RowSummary> {
    let real = summary.real_keys.as_ref();
    let first = real.map_or(Some(0), |real| real.iter().position(|is_real| *is_real));
    let after = first.map_or(usize::MAX, |first| first + 1);
    let rows = summary.rows.iter().skip(after);
    rows.filter(|row| row.is_real && row.n_visible > 0)
}

pub static DIAGONAL_MASS: Statistic = Statistic {
    id: "diagonal_mass",
    title: "current token",
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

pub static DUPLICATE_MASS: Statistic = Statistic {
    id: "duplicate_mass",
    title: "same token",
    unit: "",
    span: Span::Share,
    low: "looks elsewhere",
    high: "duplicate-token head",
    definition: "share of all probability that lies on earlier keys with the query's own token; absent where no token repeats",
    source: "duplicate-token head, TransformerLens head detector",
    compute: Compute::Head(duplicate_mass, Gather::Mean),
};

fn duplicate_mass(head: &HeadEvidence<'_>) -> f64 {
    marked_share(head, |row| row.duplicate_mass)
}

pub static INDUCTION_MASS: Statistic = Statistic {
    id: "induction_mass",
    title: "after same token",
    unit: "",
    span: Span::Share,
    low: "looks elsewhere",
    high: "induction head",
    definition: "share of all probability that lies on keys that follow an earlier copy of the query's token; absent where no token repeats",
    source: "induction head, Olsson et al. 2022; TransformerLens head detector",
    compute: Compute::Head(induction_mass, Gather::Mean),
};

fn induction_mass(head: &HeadEvidence<'_>) -> f64 {
    marked_share(head, |row| row.induction_mass)
}

/// Σ A∘P / Σ A: the share of the total probability on marked cells; NaN if no cell is marked.
fn marked_share(head: &HeadEvidence<'_>, marked: impl Fn(&RowSummary) -> f32) -> f64 {
    let (mut n_marked, mut on_marked, mut whole) = (0, 0.0, 0.0);
    for row in head.rows_seeing(1) {
        whole += f64::from(row.mass);
        let mass = f64::from(marked(row));
        if !mass.is_nan() {
            (n_marked, on_marked) = (n_marked + 1, on_marked + mass);
        }
    }
    match n_marked {
        0 => f64::NAN,
        _ => on_marked / whole,
    }
}

pub static MEAN_DISTANCE: Statistic = Statistic {
    id: "mean_distance",
    title: "mean distance",
    unit: "tokens",
    span: Span::Positive,
    low: "local",
    high: "far",
    definition: "mean over queries of Σ p·|query − key|",
    source: "Vig and Belinkov 2019, arXiv 1906.04284 (there weighted over a corpus); absent in cross-attention, and where keys are patches of another grid: queries and keys are then positions of two sequences",
    compute: Compute::Head(mean_distance, Gather::Mean),
};

pub static LATER_MASS: Statistic = Statistic {
    id: "later_mass",
    title: "later keys",
    unit: "",
    span: Span::Share,
    low: "causal",
    high: "looks ahead",
    definition: "mean over queries of the probability given to keys after their own place; 0 under a causal mask",
    source: "what a dropped causal mask leaves in the pattern; absent where queries and keys are positions of two sequences",
    compute: Compute::Head(later_mass, Gather::Mean),
};

fn later_mass(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    row_mean(head.rows_seeing(1), |row| f64::from(row.later_mass))
}

pub static PAD_MASS: Statistic = Statistic {
    id: "pad_mass",
    title: "padding",
    unit: "",
    span: Span::Share,
    low: "masked",
    high: "attends to padding",
    definition: "mean over real queries of the probability given to keys that are padding; absent where there is none",
    source: "what a dropped padding mask leaves in the pattern",
    compute: Compute::Head(pad_mass, Gather::Mean),
};

fn pad_mass(head: &HeadEvidence<'_>) -> f64 {
    let summary = head.summary;
    let real = summary.real_keys.as_deref().unwrap_or_default();
    if !real.contains(&false) {
        return f64::NAN;
    }
    let sums = summary.column_sums.iter().zip(real);
    let on_pads = sums.filter(|(_, is_real)| !**is_real);
    let n_rows = head.rows_seeing(1).count();
    on_pads.map(|(sum, _)| f64::from(*sum)).sum::<f64>() / n_rows as f64
}

pub static DOCUMENT_MASS: Statistic = Statistic {
    id: "document_mass",
    title: "other documents",
    unit: "",
    span: Span::Share,
    low: "separated",
    high: "attends to other documents",
    definition: "mean over queries of the probability given to keys of another document of a packed row; absent where no documents are known",
    source: "what a lost block-diagonal mask leaves in the pattern",
    compute: Compute::Head(document_mass, Gather::Mean),
};

fn document_mass(head: &HeadEvidence<'_>) -> f64 {
    let audit = head.audit;
    let audit = audit.filter(|audit| audit.has_documents && !head.is_cross);
    let n_rows = head.rows_seeing(1).count();
    audit.map_or(f64::NAN, |audit| {
        audit.across_documents.mass / n_rows as f64
    })
}

fn mean_distance(head: &HeadEvidence<'_>) -> f64 {
    if head.is_cross {
        return f64::NAN;
    }
    row_mean(head.rows_seeing(1), |row| f64::from(row.distance))
}
