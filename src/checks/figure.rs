//! Numbers in evidence and verdicts.

/// Formats a number for people: few digits, and a power of ten if needed.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value.is_nan() => "NaN".to_owned(),
        0.0 => "0".to_owned(),
        _ if !(1e-3..1e5).contains(&size) => format!("{value:.1e}"),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}
