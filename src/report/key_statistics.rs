//! The key statistics that reports for people show first, and how their values are formatted.

use attnscope_checks::stats::{Compute, Gather, STATISTICS, Stat, Statistic};
use attnscope_spec::Stack;

use super::document::{LayerRecord, Report};
use super::verdict_text::figure;

/// The statistics in the table of layers.
const OF_LAYERS: [Stat; 6] = [
    Stat::EntropyRelative,
    Stat::MaxProbability,
    Stat::FirstKeyMass,
    Stat::MaxAbsScore,
    Stat::ScoreVarRatio,
    Stat::ResidNorm,
];

/// Returns registry indices of the statistics in the table of layers.
pub(super) fn of_layers() -> Vec<usize> {
    OF_LAYERS.map(Stat::idx).to_vec()
}

/// Returns those of them that heads have too.
pub(super) fn of_heads() -> Vec<usize> {
    let all = of_layers().into_iter();
    all.filter(|idx| STATISTICS[*idx].is_per_head()).collect()
}

/// Returns title and unit.
pub(super) fn heading(statistic: &Statistic) -> String {
    match statistic.unit {
        "" => statistic.title.to_owned(),
        unit => format!("{} ({unit})", statistic.title),
    }
}

/// Formats a value for people; a dash if it is absent.
pub(super) fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), figure)
}

/// Returns the stacks of a report, in the order in which they run.
pub(super) fn stacks(report: &Report) -> Vec<Stack> {
    let mut stacks = Vec::new();
    for layer in report.prompts.iter().flat_map(|prompt| &prompt.layers) {
        if !stacks.contains(&layer.stack) {
            stacks.push(layer.stack);
        }
    }
    stacks
}

/// Combines a layer statistic over all prompts as a layer combines its heads: absent if it is absent on any prompt, and NaN if it
/// is NaN on any.
pub(super) fn over_prompts(report: &Report, stack: Stack, layer: usize, idx: usize) -> Option<f64> {
    let of = |record: &LayerRecord| record.stats.measured(idx);
    let layers = report.prompts.iter().flat_map(|prompt| &prompt.layers);
    let values: Option<Vec<f64>> = layers
        .filter(|record| (record.stack, record.layer) == (stack, layer))
        .map(of)
        .collect();
    let values = values.filter(|values| !values.is_empty())?;
    if values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    Some(match STATISTICS[idx].compute {
        Compute::Head(_, Gather::Max) => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        Compute::Head(_, Gather::Min) => values.into_iter().fold(f64::INFINITY, f64::min),
        _ => values.iter().sum::<f64>() / values.len() as f64,
    })
}
