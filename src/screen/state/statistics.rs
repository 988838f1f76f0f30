//! Statistics that a grid can show: those of reports, then those of the selected tokens.

use attnscope_checks::stats::{Compute, Gather, STATISTICS, Span, Statistic};

/// The statistics after those of reports: their values depend on the selected tokens.
static ON_KEY: Statistic = Statistic {
    id: "mass_on_selected_key",
    title: "mass on this key",
    unit: "",
    span: Span::Share,
    low: "no query looks",
    high: "every query looks only there",
    definition: "mean over queries that see the selected key of the probability they give it",
    source: "Ours",
    compute: Compute::Head(|_| f64::NAN, Gather::Mean),
};

static FROM_QUERY: Statistic = Statistic {
    id: "mass_from_selected_query",
    title: "mass from this query to the key",
    unit: "",
    span: Span::Share,
    low: "does not look",
    high: "looks only there",
    definition: "the probability that the selected query gives to the selected key",
    source: "Ours",
    compute: Compute::Head(|_| f64::NAN, Gather::Mean),
};

/// Number of statistics that a grid can show.
pub fn n_statistics() -> usize {
    STATISTICS.len() + 2
}

/// A statistic by its index: first those of reports, then those of the selected tokens.
pub fn statistic(idx: usize) -> &'static Statistic {
    match idx.checked_sub(STATISTICS.len()) {
        None => STATISTICS[idx],
        Some(0) => &ON_KEY,
        Some(_) => &FROM_QUERY,
    }
}
