//! Sums and comparisons of f64, as definitions write them.

/// Row summaries are f32 and scores f32 products; everything after them is f64.
const RELATIVE_TOLERANCE: f64 = 1e-5;
/// For statistics that happen to be near 0.
const ABSOLUTE_TOLERANCE: f64 = 1e-6;

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn variance(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied());
    values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64
}

pub fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

pub fn assert_near(found: f64, expected: f64, place: &str) {
    let tolerance = RELATIVE_TOLERANCE * expected.abs() + ABSOLUTE_TOLERANCE;
    let is_undefined = found.is_nan() && expected.is_nan();
    assert!(
        is_undefined || (found - expected).abs() <= tolerance,
        "{place}: expected {expected}, found {found}"
    );
}
