//! Values of statistics as text, and the placeholder for undefined ones.

use attnscope_checks::stats::LayerReport;

use crate::figure::{change, figure};

/// Placeholder for a value that is not defined.
pub const UNDEFINED: &str = "–";

/// Formats the value of a head's or the layer's statistic; a dash if it is not defined.
pub fn statistic_figure(
    layer: &LayerReport,
    (idx, head_idx): (usize, usize),
    value: f64,
    width: usize,
) -> String {
    if value.is_nan() && layer.why_undefined(idx, Some(head_idx)).is_some() {
        format!("{UNDEFINED:>width$}")
    } else {
        figure(value, width)
    }
}

/// Formats the values of a statistic in two runs, and the change; dashes where it is not defined.
pub fn change_of(
    layers: [&LayerReport; 2],
    at: (usize, usize),
    values: [f64; 2],
    (width, change_width): (usize, usize),
) -> ([String; 2], String) {
    let figures = [0, 1].map(|nth| statistic_figure(layers[nth], at, values[nth], width));
    let is_undefined = figures.iter().any(|figure| figure.trim() == UNDEFINED);
    let change = if is_undefined {
        format!("{UNDEFINED:>change_width$}")
    } else {
        change(values[0], values[1], change_width)
    };
    (figures, change)
}
