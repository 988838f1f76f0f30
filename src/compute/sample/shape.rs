//! Sample statistics: mean, spread, skewness, and the distance between two distributions.

/// Moments of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    pub mean: f64,
    /// Population standard deviation: divided by n.
    pub std: f64,
    /// m₃ / m₂^(3/2); NaN if all values are equal.
    pub skewness: f64,
}

impl Shape {
    pub fn of(sample: &[f64]) -> Self {
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        let (mut second, mut third) = (0.0, 0.0);
        for value in sample {
            let off = value - mean;
            second += off * off;
            third += off * off * off;
        }
        let std = (second / n).sqrt();
        Self {
            mean,
            std,
            skewness: third / n / (std * std * std),
        }
    }

    /// The sample standardised to mean 0 and standard deviation 1, in ascending order.
    pub fn standardised(&self, sample: &[f64]) -> Vec<f64> {
        let mut values: Vec<f64> = sample.iter().map(|v| (v - self.mean) / self.std).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// The largest distance between the distribution functions of two sorted samples (Kolmogorov and Smirnov); NaN if a value is NaN.
pub fn ks_distance(a: &[f64], b: &[f64]) -> f64 {
    if a.iter().chain(b).any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let (mut i, mut j) = (0, 0);
    let mut largest: f64 = 0.0;
    while i < a.len() && j < b.len() {
        // Both functions may step at a shared value: the distance is taken after all steps there.
        let at = a[i].min(b[j]);
        i += a[i..].iter().take_while(|value| **value <= at).count();
        j += b[j..].iter().take_while(|value| **value <= at).count();
        let apart = i as f64 / a.len() as f64 - j as f64 / b.len() as f64;
        largest = largest.max(apart.abs());
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_match_values_computed_by_hand() {
        // Mean 2, deviations −1, −1, 2: m₂ = 2, m₃ = 2, skewness 2/2^1.5.
        let shape = Shape::of(&[1.0, 1.0, 4.0]);
        assert_eq!(shape.mean, 2.0);
        assert!((shape.std - 2f64.sqrt()).abs() < 1e-15);
        assert!((shape.skewness - 0.5f64.sqrt()).abs() < 1e-15);
        assert!(Shape::of(&[3.0, 3.0]).skewness.is_nan());
    }

    #[test]
    fn distances_match_values_computed_by_hand() {
        assert_eq!(
            ks_distance(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]),
            0.0
        );
        assert_eq!(ks_distance(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
        // After 2, both 2s of the second sample and one of the four values of the first are counted.
        assert_eq!(ks_distance(&[2.0, 5.0, 6.0, 7.0], &[2.0, 2.0]), 0.75);
        assert!(ks_distance(&[1.0, f64::NAN], &[1.0, 2.0]).is_nan());
    }
}
