//! Medians and spreads that are robust to single outliers.

/// Returns the median; NaN if there are no values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns the standard deviation of noise on a level that may drift, estimated from the median absolute difference of
/// neighbours. Differences are √2 times as wide, and 1.4826 scales to normal noise. NaN for fewer than two values.
pub fn noise(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    1.4826 * median(differences) / std::f64::consts::SQRT_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_changes_neither_median_nor_noise() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([1.0, 2.0, 3.0, 1e9].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
        let calm: Vec<f64> = (0..40).map(|n| f64::from(n % 2)).collect();
        let mut wild = calm.clone();
        wild[20] = 1e9;
        assert!((noise(&calm) - noise(&wild)).abs() < 1e-9);
        assert!(noise(&[1.0]).is_nan());
    }
}
