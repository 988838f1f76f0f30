//! Values of statistics as text, and the placeholder for undefined ones.

use attnscope_checks::stats::LayerReport;

use crate::figure::figure;

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
