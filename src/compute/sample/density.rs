//! Kernel density estimates: the distribution of a sample as a curve.

use super::shape::Shape;

/// Bandwidths by which the curve extends beyond the smallest and the largest value: less than 1e-4 lies outside.
const REACH: f64 = 4.0;

/// A Gaussian kernel density estimate on an even grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Density {
    pub bandwidth: f64,
    /// Pairs of value and density, in ascending order of values.
    pub points: Vec<(f64, f64)>,
}

impl Density {
    /// Estimates the density of a sample with the normal-reference bandwidth (4/3)^(1/5)·σ·n^(−1/5) (Silverman 1986, eq. 3.28).
    /// `None` if all values are equal or one is not finite. The more robust rule with the interquartile range (eq. 3.30) is not
    /// used: a saturated softmax leaves most weights at 0, where it would give a bandwidth near 0.
    pub fn of(sample: &[f64], n_points: usize) -> Option<Self> {
        let n = sample.len() as f64;
        let std = Shape::of(sample).std;
        let bandwidth = libm::pow(4.0 / 3.0 / n, 0.2) * std;
        if !(bandwidth > 0.0 && bandwidth.is_finite()) {
            return None;
        }
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let low = sorted.first()? - REACH * bandwidth;
        let high = sorted.last()? + REACH * bandwidth;
        let step = (high - low) / (n_points.max(2) - 1) as f64;
        let factor = 1.0 / (n * bandwidth * std::f64::consts::TAU.sqrt());
        let density = |x: f64| {
            // Kernels farther away are below 1e-17 of their height.
            let near = 9.0 * bandwidth;
            let first = sorted.partition_point(|value| *value < x - near);
            let kernels = sorted[first..]
                .iter()
                .take_while(|value| **value <= x + near);
            let kernel = |value: &f64| {
                let off = (x - value) / bandwidth;
                libm::exp(-0.5 * off * off)
            };
            factor * kernels.map(kernel).sum::<f64>()
        };
        let points = (0..n_points.max(2)).map(|i| low + step * i as f64);
        Some(Self {
            bandwidth,
            points: points.map(|x| (x, density(x))).collect(),
        })
    }
}
