//! Trends towards a line: whether a statistic moves at all, how fast, and when it would cross.
//!
//! Whether it moves: the test of Mann 1945 and Kendall, whose variance is widened for autocorrelation. How fast: the median slope of
//! Theil 1950 and Sen 1968, with Sen's interval. docs/history.md has the formulas.

use attnscope_spec::Place;

use super::lines::{Line, Side};
use super::robust::median;

/// Numbers of records that a fit uses, smallest first.
const WINDOWS: [usize; 5] = [7, 10, 12, 20, 32];

/// In the shortest windows the normal approximation is too coarse: the number of pairs that may be out of order.
const IN_ORDER: [(usize, usize); 2] = [(7, 0), (10, 2)];

/// Critical value of the two-sided test: noise passes it once in 1,000.
const CHANCE_Z: f64 = 3.29;

/// Share of the way to the line, from the beginning of the window, that must be covered.
const COVERED: f64 = 0.5;

/// A statistic that grows by factors must be within this factor of the threshold: scores grow from 1 to 20 in any training.
const NEAR: f64 = 4.0;

/// Largest distance of a crossing, in lengths of the window.
const HORIZON: f64 = 1.0;

/// Half-width of the interval of the slope, in standard deviations: 95 %.
const INTERVAL_Z: f64 = 1.96;

/// A statistic with a trend towards a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    pub check: &'static str,
    pub statistic: &'static str,
    pub place: Place,
    /// Cell in the grid.
    pub cell: usize,
    /// The last and the first record of the fit.
    pub at: usize,
    pub since: usize,
    /// Value of the fitted line at the last record.
    pub now: f64,
    pub threshold: f64,
    /// Change per step: the relative growth for ratios, the difference otherwise.
    pub slope: f64,
    pub is_ratio: bool,
    /// The step at which it would cross the line, and its 95 % interval, which may end at infinity.
    pub crosses: f64,
    pub between: (f64, f64),
}

/// A fit without its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fit {
    pub n: usize,
    pub now: f64,
    pub slope: f64,
    pub crosses: f64,
    pub between: (f64, f64),
}

/// Looks for a trend towards the line. `points` are the last steps and values in order, without NaN, none beyond the line.
pub(super) fn towards(points: &[(f64, f64)], line: &Line, threshold: f64) -> Option<Fit> {
    let is_plain = |y: f64| y.is_finite() && (!line.is_ratio || y > 0.0);
    let windows = WINDOWS.iter().filter(|n| **n <= points.len());
    windows
        .map(|n| &points[points.len() - n..])
        .filter(|window| window.iter().all(|(_, y)| is_plain(*y)))
        .find_map(|window| fit(window, line, threshold))
}

fn fit(window: &[(f64, f64)], line: &Line, threshold: f64) -> Option<Fit> {
    let scaled = |y: f64| if line.is_ratio { y.ln() } else { y };
    let points: Vec<(f64, f64)> = window.iter().map(|(x, y)| (*x, scaled(*y))).collect();
    let goal = scaled(threshold);
    let n = points.len();
    // The cheap test first: most statistics do not move.
    let mean_of = |part: &[(f64, f64)]| median(part.iter().map(|(_, y)| *y));
    let (first, last) = (mean_of(&points[..3]), mean_of(&points[n - 3..]));
    let covered = (last - first) / (goal - first);
    let is_before = !line.is_crossed(median(window[n - 3..].iter().map(|(_, y)| *y)), threshold);
    let is_near = !line.is_ratio || (last - goal).abs() <= NEAR.ln();
    if !(is_before && covered >= COVERED && is_near) {
        return None;
    }
    let (start, now) = (points[0].0, points[n - 1].0);
    let length = now - start;
    let whole = Slopes::of(&points);
    // A trend that slows down may never arrive: the later half alone must lead there too.
    let half = Slopes::of(&points[n / 2..]);
    if !is_certain(&points, line.side, whole.median) {
        return None;
    }
    let level = whole.level(&points, now);
    let arrives = |slope: f64, level: f64| match (goal - level) / slope {
        ahead if ahead.is_nan() || (ahead < 0.0 && (goal - level).abs() > 0.0) => f64::INFINITY,
        ahead => ahead,
    };
    let level_of_half = half.level(&points[n / 2..], now);
    let ahead = arrives(whole.median, level);
    let ahead_of_half = arrives(half.median, level_of_half);
    if ahead > HORIZON * length || ahead_of_half > HORIZON * length {
        return None;
    }
    let [low, high] = whole.interval(&points).map(|slope| arrives(slope, level));
    let between = (now + low.min(high), now + low.max(high));
    let slope = if line.is_ratio {
        whole.median.exp_m1()
    } else {
        whole.median
    };
    let now_value = if line.is_ratio { level.exp() } else { level };
    Some(Fit {
        n,
        now: now_value,
        slope,
        crosses: now + ahead,
        between,
    })
}

/// The slopes of all pairs of points, sorted.
struct Slopes {
    sorted: Vec<f64>,
    median: f64,
}

impl Slopes {
    fn of(points: &[(f64, f64)]) -> Self {
        let mut sorted = Vec::with_capacity(points.len() * points.len() / 2);
        for (nth, a) in points.iter().enumerate() {
            for b in &points[nth + 1..] {
                if b.0 > a.0 {
                    sorted.push((b.1 - a.1) / (b.0 - a.0));
                }
            }
        }
        sorted.sort_by(f64::total_cmp);
        let median = median(sorted.iter().copied());
        Self { sorted, median }
    }

    /// Returns the fitted line at `x`, through the median of the residuals.
    fn level(&self, points: &[(f64, f64)], x: f64) -> f64 {
        let slope = self.median;
        slope * x + median(points.iter().map(|(at, y)| y - slope * at))
    }

    /// Returns Sen's interval: slopes at ranks around the median that follow from the test's standard deviation.
    fn interval(&self, points: &[(f64, f64)]) -> [f64; 2] {
        let n = self.sorted.len();
        if n == 0 {
            return [f64::NAN; 2];
        }
        let width = INTERVAL_Z * variance(points, self.median).sqrt();
        let at = |place: f64| self.sorted[(place.max(0.0) as usize).min(n - 1)];
        [
            at(((n as f64 - width) / 2.0).floor()),
            at(((n as f64 + width) / 2.0).ceil()),
        ]
    }
}

/// Whether points move in one direction more than noise does.
fn is_certain(points: &[(f64, f64)], side: Side, slope: f64) -> bool {
    let n = points.len();
    let s = match side {
        Side::Below => -kendall(points),
        Side::Above => kendall(points),
    };
    match IN_ORDER.iter().find(|(of, _)| *of == n) {
        Some((_, n_out)) => s >= (n * (n - 1) / 2) as f64 - 2.0 * *n_out as f64,
        None => (s - 1.0) / variance(points, slope).sqrt() > CHANCE_Z,
    }
}

/// Returns Kendall's S: the number of rising pairs minus that of falling pairs.
fn kendall(points: &[(f64, f64)]) -> f64 {
    let mut s = 0.0;
    for (nth, a) in points.iter().enumerate() {
        for b in &points[nth + 1..] {
            s += f64::from(i8::from(b.1 > a.1) - i8::from(b.1 < a.1));
        }
    }
    s
}

/// Returns the variance of S without a trend: n(n−1)(2n+5)/18, times (1+ρ)/(1−ρ) for the autocorrelation ρ of the residuals. The
/// estimate of ρ is corrected for the bias from fitting a line (Kendall 1954; Marriott and Pope 1954).
fn variance(points: &[(f64, f64)], slope: f64) -> f64 {
    let n = points.len() as f64;
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let rho = (autocorrelation(&rests) + 2.0 / n) / (1.0 - 4.0 / n);
    let rho = rho.clamp(0.0, 0.95);
    n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * (1.0 + rho) / (1.0 - rho)
}

/// Returns the correlation of each value with the next one, about the mean; 0 if all are equal.
pub(super) fn autocorrelation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let all: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let next = values.windows(2);
    let next: f64 = next.map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if all > 0.0 { next / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise with correlated neighbours: normal, or Student's t with 2 degrees of freedom.
    fn noise(
        n: usize,
        correlation: f64,
        is_heavy: bool,
        random: &mut fastrand::Rng,
    ) -> Vec<(f64, f64)> {
        let mut normal = || {
            let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
            radius * (std::f64::consts::TAU * random.f64()).cos()
        };
        let mut value = 0.0;
        let mut points = Vec::new();
        for at in 0..n + 40 {
            let shock = if is_heavy {
                normal() / ((normal().powi(2) + normal().powi(2)) / 2.0).sqrt()
            } else {
                normal()
            };
            value = correlation * value + shock;
            if at >= 40 {
                points.push((at as f64, value));
            }
        }
        points
    }

    #[test]
    fn noise_passes_the_trend_test_in_at_most_one_series_in_a_hundred() {
        const N: usize = 4000;
        let mut random = fastrand::Rng::with_seed(3);
        for correlation in [0.0, 0.3, 0.6] {
            for is_heavy in [false, true] {
                for n in WINDOWS {
                    let passes = (0..N).filter(|_| {
                        let points = noise(n, correlation, is_heavy, &mut random);
                        is_certain(&points, Side::Above, Slopes::of(&points).median)
                    });
                    let rate = passes.count() as f64 / N as f64;
                    let most = 0.01 + 3.0 * (0.01 * 0.99 / N as f64).sqrt();
                    assert!(
                        rate <= most,
                        "{n} values, correlation {correlation}, heavy {is_heavy}: {rate}"
                    );
                }
            }
        }
    }
}
