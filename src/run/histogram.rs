//! Histogram of a head's scores.

/// Number of bins.
const N_BINS: usize = 60;

/// Counts of values in equally wide bins between the smallest and the largest finite value.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    pub min: f32,
    pub max: f32,
    pub counts: Vec<u64>,
    pub n: u64,
}

impl Histogram {
    /// Counts the finite values; masked scores (−inf) are left out.
    pub fn of(values: &[f32]) -> Self {
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let (min, max) = finite().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), v| {
            (a.min(v), b.max(v))
        });
        let mut counts = vec![0; N_BINS];
        let mut n = 0;
        for value in finite() {
            let share = if max > min {
                (value - min) / (max - min)
            } else {
                0.5
            };
            counts[((share * N_BINS as f32) as usize).min(N_BINS - 1)] += 1;
            n += 1;
        }
        Self {
            min,
            max,
            counts,
            n,
        }
    }

    pub fn bin_width(&self) -> f64 {
        f64::from(self.max - self.min) / self.counts.len() as f64
    }

    /// Centre and density of each bin; the densities integrate to 1.
    pub fn densities(&self) -> Vec<(f64, f64)> {
        let width = self.bin_width();
        let middle = |bin_idx: usize| f64::from(self.min) + (bin_idx as f64 + 0.5) * width;
        let density = |count: u64| count as f64 / (self.n as f64 * width);
        self.counts
            .iter()
            .enumerate()
            .map(|(bin_idx, count)| (middle(bin_idx), density(*count)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn densities_integrate_to_one_and_masked_scores_do_not_count() {
        let mut values: Vec<f32> = (0..1000).map(|v| (v as f32 * 0.37).sin()).collect();
        values.extend([f32::NEG_INFINITY, f32::NAN]);
        let histogram = Histogram::of(&values);
        assert_eq!(histogram.n, 1000);
        let total: f64 = histogram
            .densities()
            .iter()
            .map(|(_, d)| d * histogram.bin_width())
            .sum();
        assert!((total - 1.0).abs() < 1e-9);
        assert_eq!(Histogram::of(&[f32::NAN]).n, 0);
        assert_eq!(Histogram::of(&[2.0, 2.0]).counts[N_BINS / 2], 2);
    }
}
