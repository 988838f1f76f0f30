//! Divisors at growing head width: entropy against the width, one chart for each number of keys.

use attnscope_compute::sample::Distribution;
use attnscope_studies::lab::{RescaleSetup, Rescaled, Rescaling};

use super::rescale::short;
use crate::chart::{Axis, Chart, Figure, Series};

/// Plots relative entropy of the weights against d: a line for each divisor, a chart for each number of keys.
pub fn rescale_sweep_figure(setup: &RescaleSetup, cases: &[Rescaled]) -> Figure {
    let mut n_keys: Vec<usize> = cases.iter().map(|case| case.n_keys).collect();
    n_keys.sort_unstable();
    n_keys.dedup();
    let chart = |n_keys: &usize| {
        let here: Vec<&Rescaled> = cases.iter().filter(|case| case.n_keys == *n_keys).collect();
        let line = |(nth, of): (usize, &Rescaling)| {
            let point = |case: &&Rescaled| (case.d as f64, case.of[nth].relative_entropy);
            let mut points: Vec<(f64, f64)> = here.iter().map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::line(short(of.divisor), points)
        };
        let first = here.first().map_or(&[][..], |case| &case.of);
        Chart {
            title: format!("{n_keys} keys"),
            x: Axis::logarithmic("d"),
            y: Axis::linear("entropy / log n").from(0.0).to(1.0),
            series: first.iter().enumerate().map(line).collect(),
            marks: Vec::new(),
        }
    };
    let Distribution { family, mean, std } = setup.components;
    let charts: Vec<Chart> = n_keys.iter().map(chart).collect();
    Figure {
        title: format!(
            "entropy against the width: {} queries, {}({mean}, {std}), seed {}",
            setup.n_queries,
            family.id(),
            setup.seed
        ),
        n_columns: charts.len().min(2),
        charts,
    }
}
