//! The few statistics that reports for people put first, and how their values are written.

use super::document::{LayerRecord, Report};
use super::verdict_text::figure;
use attnscope_engine::model::Stack;
use attnscope_engine::stats::{Compute, Gather, STATISTICS, Statistic, index_of};

/// Ids of the statistics in the table of layers.
const OF_LAYERS: [&str; 6] = [
    "entropy_relative",
    "max_probability",
    "first_key_mass",
    "max_abs_score",
    "score_var_ratio",
    "resid_norm",
];

/// The statistics of the table of layers, by their place in the registry.
pub(super) fn of_layers() -> Vec<usize> {
    OF_LAYERS.iter().filter_map(|id| index_of(id)).collect()
}

/// Those of them that single heads have.
pub(super) fn of_heads() -> Vec<usize> {
    let all = of_layers().into_iter();
    all.filter(|idx| STATISTICS[*idx].is_per_head()).collect()
}

/// Title and unit.
pub(super) fn heading(statistic: &Statistic) -> String {
    match statistic.unit {
        "" => statistic.title.to_owned(),
        unit => format!("{} ({unit})", statistic.title),
    }
}

/// A value as a person reads it; a dash where it has no meaning.
pub(super) fn cell(value: f64) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        figure(value)
    }
}

/// The stacks of a report, in the order in which they run.
pub(super) fn stacks(report: &Report) -> Vec<Stack> {
    let mut stacks = Vec::new();
    for layer in report.prompts.iter().flat_map(|prompt| &prompt.layers) {
        if !stacks.contains(&layer.stack) {
            stacks.push(layer.stack);
        }
    }
    stacks
}

/// A statistic of a layer over all prompts, gathered as a layer gathers its heads': NaN when any prompt's is.
pub(super) fn over_prompts(report: &Report, stack: Stack, layer: usize, idx: usize) -> f64 {
    let of = |record: &LayerRecord| record.stats.at(idx);
    let layers = report.prompts.iter().flat_map(|prompt| &prompt.layers);
    let values: Vec<f64> = layers
        .filter(|record| (record.stack, record.layer) == (stack, layer))
        .map(of)
        .collect();
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    match STATISTICS[idx].compute {
        Compute::Head(_, Gather::Max) => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        Compute::Head(_, Gather::Min) => values.into_iter().fold(f64::INFINITY, f64::min),
        _ => values.iter().sum::<f64>() / values.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_statistic_is_registered() {
        assert_eq!(of_layers().len(), OF_LAYERS.len());
        assert!(of_heads().len() < of_layers().len());
    }
}
