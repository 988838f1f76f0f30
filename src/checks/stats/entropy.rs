//! How widely a head spreads its attention.

use attnscope_compute::attention::{HeadSummary, RowSummary};

use super::{Compute, Gather, HeadEvidence, Span, Statistic, row_mean};

const ZHAI: &str = "Zhai et al. 2023, arXiv 2303.06296";

pub static ENTROPY: Statistic = Statistic {
    id: "entropy",
    title: "entropy",
    unit: "nats",
    span: Span::Positive,
    low: "one key",
    high: "many keys",
    definition: "mean over queries of −Σ p log p over keys, with 0·log 0 = 0; absent where a row is not a distribution: its sum is off 1 by more than 0.03 and no learned sink takes the rest",
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
    low: "focused",
    high: "uniform",
    definition: "row entropy ÷ log(number of visible keys), averaged over queries that see at least two keys",
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
    definition: "mean over queries of exp(entropy of the row divided by its sum): how many equally weighted keys would have this entropy; what a learned sink takes is left aside",
    source: "perplexity of the row; entropy as in Zhai et al. 2023",
    compute: Compute::Head(effective_keys, Gather::Mean),
};

fn effective_keys(head: &HeadEvidence<'_>) -> f64 {
    row_mean(head.distributions_over(1), |row| {
        over_keys(row, head.has_sink).exp()
    })
}

/// Entropy of a row; with a learned sink, of the remaining probability, renormalised.
fn over_keys(row: &RowSummary, has_sink: bool) -> f64 {
    let (entropy, mass) = (f64::from(row.entropy), f64::from(row.mass));
    if has_sink {
        // −Σ (p/m) log (p/m) = H/m + log m. Rounding may make it negative.
        let shared = entropy / mass + mass.ln();
        if shared < 0.0 { 0.0 } else { shared }
    } else {
        entropy
    }
}

/// Mean relative entropy of a head's rows over the probability that a learned sink leaves, or over whole rows without a sink. NaN
/// if no row is such a distribution over two or more keys.
pub fn relative_over_keys(summary: &HeadSummary, has_sink: bool) -> f64 {
    let seeing = |row: &&RowSummary| row.is_real && row.n_visible >= 2 && row.mass != 0.0;
    row_mean(summary.rows.iter().filter(seeing), |row| {
        over_keys(row, has_sink) / f64::from(row.n_visible).ln()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A softmax row in which some probability goes to a sink.
    fn row(p: &[f64]) -> RowSummary {
        let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
        RowSummary {
            n_visible: p.len() as u32,
            mass: p.iter().sum::<f64>() as f32,
            entropy: entropy as f32,
            ..RowSummary::empty(true)
        }
    }

    fn values(rows: Vec<RowSummary>, has_sink: bool) -> [f64; 3] {
        let n_keys = rows.len();
        let summary = HeadSummary {
            rows,
            column_sums: vec![0.0; n_keys],
            k_norms: vec![1.0; n_keys],
            value_norms: Vec::new(),
            real_keys: None,
            global_tokens: Vec::new(),
            pooled: attnscope_compute::attention::Pooled::new(n_keys, n_keys),
            samples: Vec::new(),
        };
        let evidence = HeadEvidence {
            audit: None,
            summary: &summary,
            output_norms: &[],
            resid_norms: &[],
            scale: 1.0,
            d_head: 1,
            is_cross: false,
            has_sink,
        };
        [
            entropy(&evidence),
            effective_keys(&evidence),
            relative_over_keys(&summary, has_sink),
        ]
    }

    #[test]
    fn the_probability_that_a_sink_leaves_is_renormalised_over_the_keys() {
        let faint = vec![row(&[0.0025; 4])];
        let [entropy, keys, relative] = values(faint, true);
        assert!((entropy - 0.01 * 400f64.ln()).abs() < 1e-6, "{entropy}");
        assert!((keys - 4.0).abs() < 1e-4, "{keys}");
        assert!((relative - 1.0).abs() < 1e-4, "{relative}");
        let one = vec![row(&[0.3, 1e-12])];
        let [_, keys, relative] = values(one, true);
        assert!(
            (keys - 1.0).abs() < 1e-4 && relative < 1e-4,
            "{keys} {relative}"
        );
    }

    #[test]
    fn rows_that_do_not_sum_to_1_have_no_entropy_unless_a_sink_takes_the_rest() {
        for (mass, has_sink, is_number) in [
            (1.0, false, true),
            (0.98, false, true),
            (1.02, false, true),
            (0.96, false, false),
            (1.04, false, false),
            (0.5, false, false),
            (0.5, true, true),
            (1.04, true, false),
        ] {
            let rows = vec![row(&[0.5 * mass, 0.5 * mass]), row(&[0.25, 0.75])];
            let [entropy, keys, _] = values(rows, has_sink);
            assert_eq!(entropy.is_nan(), !is_number, "{mass} {has_sink}");
            assert_eq!(keys.is_nan(), !is_number, "{mass} {has_sink}");
        }
        // A row of zeros belongs to a query that sees nothing.
        let zeros = RowSummary {
            n_visible: 2,
            entropy: 0.0,
            ..RowSummary::empty(true)
        };
        let [entropy, ..] = values(vec![zeros, row(&[0.5, 0.5])], false);
        assert!((entropy - 2f64.ln()).abs() < 1e-6, "{entropy}");
    }
}
