//! Named statistics over row summaries, and the registry behind screens, reports and docs.

mod concentration;
mod conditions;
mod contribution;
mod entropy;
mod head_type;
mod layer;
mod norms;
mod page;
mod position;
mod registry;
mod residual;
mod scores;
mod undefined;
mod variance;

pub use attnscope_compute::kernels::residual::{Peak, ResidualShape};
pub use concentration::saturated_share;
pub use conditions::Conditions;
pub use entropy::relative_over_keys;
pub use head_type::{HeadType, NAMING_SHARE, OnRandomTokens, SeenOn, commonest_distance};
pub use layer::{Alike, HeadReport, LayerReport};
pub use page::{statistic_page, statistics_page};
pub use registry::{STATISTICS, Stat, Values, index_of};

use attnscope_compute::attention::{Audit, HeadSummary, RowSummary};

/// The inputs of a head's statistics.
#[derive(Debug, Clone, Copy)]
pub struct HeadEvidence<'a> {
    pub summary: &'a HeadSummary,
    /// ‖output of the head alone‖. // [position]
    pub output_norms: &'a [f32],
    /// ‖residual before the block‖. // [position]
    pub resid_norms: &'a [f32],
    /// The factor of q·k.
    pub scale: f32,
    pub d_head: usize,
    /// Keys are tokens of another sequence, so positions of queries and keys are not comparable.
    pub is_cross: bool,
    /// A learned sink takes the probability that a row's keys leave.
    pub has_sink: bool,
    /// Probability on forbidden cells of a recorded pattern; `None` for attnscope's own runs.
    pub audit: Option<&'a Audit>,
}

/// Tolerance of row sums around 1, for bf16 rounding; other rows are not distributions over keys.
const MASS_TOLERANCE: f32 = 0.03;

impl<'a> HeadEvidence<'a> {
    /// Rows that are distributions over at least `n` keys.
    fn distributions_over(&self, n: u32) -> impl Iterator<Item = &'a RowSummary> + use<'a> {
        distributions_over(self.summary, self.has_sink, n)
    }

    /// Rows of real queries that see at least `n` keys.
    fn rows_seeing(&self, n: u32) -> impl Iterator<Item = &'a RowSummary> + use<'a> {
        rows_seeing(self.summary, n)
    }
}

/// Rows of real queries that see at least `n` keys.
fn rows_seeing(summary: &HeadSummary, n: u32) -> impl Iterator<Item = &RowSummary> {
    let rows = summary.rows.iter();
    rows.filter(move |row| row.is_real && row.n_visible >= n)
}

/// Rows of real queries that see at least `n` keys, or none at all if some row is not a distribution over keys, as after a
/// softmax over queries. Rows of zeros, which masks leave to queries that see nothing, are not counted. Rows of a head with a
/// learned sink may sum to less than 1.
fn distributions_over(
    summary: &HeadSummary,
    has_sink: bool,
    n: u32,
) -> impl Iterator<Item = &RowSummary> {
    let is_distribution = move |row: &RowSummary| {
        let is_below = row.mass < 1.0 - MASS_TOLERANCE && !has_sink;
        row.mass.is_nan() || (row.mass <= 1.0 + MASS_TOLERANCE && !is_below)
    };
    let are_distributions = rows_seeing(summary, 1)
        .filter(|row| row.mass != 0.0)
        .all(is_distribution);
    rows_seeing(summary, n).filter(move |row| are_distributions && row.mass != 0.0)
}

/// The inputs of a layer's statistics, besides its heads' statistics.
#[derive(Debug, Default)]
pub struct LayerEvidence<'a> {
    /// Per real position: ‖residual before‖, ‖attn_out‖, ‖mlp_out‖, ‖residual after‖.
    pub resid_pre: &'a [f32],
    pub attn_out: &'a [f32],
    pub mlp_out: &'a [f32],
    pub resid_post: &'a [f32],
    /// The shape of the residual after the block, over real positions.
    pub residual: Option<ResidualShape>,
}

/// How a statistic is computed, per head or per layer.
#[derive(Debug, Clone, Copy)]
pub enum Compute {
    /// Per head; `Gather` combines the heads' values for the layer.
    Head(fn(&HeadEvidence<'_>) -> f64, Gather),
    /// Per layer only.
    /// `None` where the run does not have what the statistic is made of.
    Layer(fn(&LayerEvidence<'_>) -> Option<f64>),
}

/// How the values of heads are combined into the layer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    Mean,
    Max,
    Min,
}

/// The range of a statistic, for legends and colours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    /// From 0 to 1.
    Share,
    /// From −1 to 1.
    Signed,
    /// From 0 up, without an upper limit.
    Positive,
    /// Any number.
    Any,
}

/// A statistic.
#[derive(Debug)]
pub struct Statistic {
    /// Its name in reports.
    pub id: &'static str,
    /// Its name on screens.
    pub title: &'static str,
    /// Empty for pure numbers.
    pub unit: &'static str,
    pub span: Span,
    /// The meaning of a low and of a high value.
    pub low: &'static str,
    pub high: &'static str,
    /// The exact definition.
    pub definition: &'static str,
    pub source: &'static str,
    pub compute: Compute,
}

/// Computes all statistics of a head.
pub fn of_head(evidence: &HeadEvidence<'_>) -> Values {
    let has_output = !evidence.output_norms.is_empty();
    let is_known = |stat: Stat| match stat {
        Stat::HeadOutputNorm => has_output,
        Stat::HeadOutputShare => has_output && !evidence.resid_norms.is_empty(),
        _ => true,
    };
    let value = |stat: &Stat| match stat.statistic().compute {
        Compute::Head(compute, _) => is_known(*stat).then(|| compute(evidence)),
        Compute::Layer(_) => None,
    };
    Values(Stat::ALL.iter().map(value).collect())
}

/// Computes all statistics of a layer, from its heads' and its own inputs.
pub fn of_layer(heads: &[Values], evidence: &LayerEvidence<'_>) -> Values {
    let value = |(idx, statistic): (usize, &&Statistic)| match statistic.compute {
        Compute::Head(_, gather) => {
            let known = heads.iter().any(|head| head.measured(idx).is_some());
            let values = heads.iter().map(|head| head.at(idx));
            known.then(|| gather.over(values))
        }
        Compute::Layer(compute) => compute(evidence),
    };
    Values(STATISTICS.iter().enumerate().map(value).collect())
}

impl Gather {
    /// Combines the values of heads. NaN if any value is NaN: a broken head must not be averaged away.
    pub fn over(self, values: impl Iterator<Item = f64>) -> f64 {
        match self {
            Self::Mean => mean(values),
            Self::Max => values
                .reduce(|a, b| if a >= b || a.is_nan() { a } else { b })
                .unwrap_or(f64::NAN),
            Self::Min => values
                .reduce(|a, b| if a <= b || a.is_nan() { a } else { b })
                .unwrap_or(f64::NAN),
        }
    }
}

/// The mean; NaN without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (n, sum) = values.fold((0.0, 0.0), |(n, sum), value| (n + 1.0, sum + value));
    sum / n
}

/// The mean of a field over rows.
fn row_mean<'a>(
    rows: impl Iterator<Item = &'a RowSummary>,
    field: impl Fn(&RowSummary) -> f64,
) -> f64 {
    mean(rows.map(field))
}

/// Mean and population variance over all visible pairs of a head, pooled from its rows.
fn over_pairs<'a>(
    rows: impl Iterator<Item = &'a RowSummary>,
    mean_and_var: impl Fn(&RowSummary) -> (f32, f32),
) -> (f64, f64) {
    // Chan et al. 1979: pooled variance from partial results, without the raw values.
    let (mut n, mut mean, mut m2) = (0.0f64, 0.0f64, 0.0f64);
    for row in rows {
        let (row_mean, row_var) = mean_and_var(row);
        let (row_mean, row_n) = (f64::from(row_mean), f64::from(row.n_visible));
        let delta = row_mean - mean;
        let total = n + row_n;
        mean += delta * row_n / total;
        m2 += f64::from(row_var) * row_n + delta * delta * n * row_n / total;
        n = total;
    }
    if n == 0.0 {
        (f64::NAN, f64::NAN)
    } else {
        (mean, m2 / n)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_snake_case_and_every_entry_is_complete() {
        let mut seen = BTreeSet::new();
        for s in STATISTICS {
            assert!(seen.insert(s.id), "{} is registered twice", s.id);
            assert!(
                s.id.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
                "{}",
                s.id
            );
            for text in [s.title, s.low, s.high, s.definition, s.source] {
                assert!(!text.is_empty(), "{} lacks a text", s.id);
            }
        }
    }

    #[test]
    fn every_statistic_static_is_registered() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/stats");
        let mut n_written = 0;
        for entry in std::fs::read_dir(directory).expect("the source tree") {
            let text =
                std::fs::read_to_string(entry.expect("an entry").path()).expect("a source file");
            n_written += text
                .lines()
                .filter(|line| line.starts_with("pub static ") && line.contains(": Statistic"))
                .count();
        }
        assert_eq!(n_written, STATISTICS.len());
    }

    #[test]
    fn a_nan_head_makes_the_layer_nan_whatever_the_order() {
        for gather in [Gather::Mean, Gather::Max, Gather::Min] {
            assert!(
                gather.over([1.0, f64::NAN].into_iter()).is_nan(),
                "{gather:?}"
            );
            assert!(
                gather.over([f64::NAN, 1.0, 2.0].into_iter()).is_nan(),
                "{gather:?}"
            );
        }
        assert_eq!(Gather::Max.over([1.0, 3.0, 2.0].into_iter()), 3.0);
    }
}
