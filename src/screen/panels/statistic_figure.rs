//! The number of a statistic as text, and what stands for it where it is not defined.

use attnscope_checks::stats::LayerReport;

use crate::figure::figure;

/// What stands for the value of a statistic that is not defined here.
pub const UNDEFINED: &str = "–";

/// The number of a statistic of a head, or of the layer; a dash where it is not defined here.
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
