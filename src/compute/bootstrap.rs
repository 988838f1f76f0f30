//! Confidence intervals of means: a percentile bootstrap with a fixed seed, so that the same input gives the same interval.

/// Number of draws: the ends of a 99 % interval rest on a few dozen of them.
const N_DRAWS: usize = 4000;
const SEED: u64 = 0x5eed_a77e;

/// The 99 % interval of a mean over positions, drawn with replacement (Efron 1979).
pub fn interval_of_mean(values: &[f64]) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(SEED);
    let n = values.len() as u64;
    let mut means: Vec<f64> = (0..N_DRAWS)
        .map(|_| mean_of_drawn(values, n, &mut random))
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((N_DRAWS - 1) as f64 * share).round() as usize];
    (at(0.005), at(0.995))
}

/// The mean of `values.len()` values drawn with replacement; each 64-bit random number gives two indices.
fn mean_of_drawn(values: &[f64], n: u64, random: &mut fastrand::Rng) -> f64 {
    let at = |bits: u32| values[((u64::from(bits) * n) >> 32) as usize];
    let mut sum = 0.0;
    for _ in 0..values.len() / 2 {
        let bits = random.u64(..);
        sum += at((bits >> 32) as u32) + at(bits as u32);
    }
    if !values.len().is_multiple_of(2) {
        sum += at(random.u32(..));
    }
    sum / n as f64
}

/// Whether the confidence interval of a mean is above zero.
///
/// Draws only when they can decide: with a hundred values, the interval of a mean of at least five standard errors never reaches
/// zero, and that of a mean of at most one always does.
pub fn is_surely_positive(values: &[f64]) -> bool {
    const FEWEST: usize = 100;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    let errors = mean / (variance / n).sqrt();
    if values.len() >= FEWEST && errors >= 5.0 {
        return true;
    }
    if values.len() >= FEWEST && errors <= 1.0 {
        return false;
    }
    interval_of_mean(values).0 > 0.0
}

/// Number of positions at which a mean this large, with this spread, would be certain: 2.58 standard errors below it is still
/// above zero.
pub fn positions_wanted(values: &[f64]) -> usize {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    let wanted = variance * (2.58 / mean) * (2.58 / mean);
    wanted.ceil().max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_contains_the_mean_and_narrows_with_more_values() {
        let values = |n: usize| -> Vec<f64> { (0..n).map(|i| ((i * 7919) % 101) as f64).collect() };
        let width = |n: usize| {
            let (low, high) = interval_of_mean(&values(n));
            let mean = values(n).iter().sum::<f64>() / n as f64;
            assert!(low < mean && mean < high);
            high - low
        };
        let (few, many) = (width(101), width(1616));
        // Sixteen times as many values give a quarter of the width; the normal interval is 2·2.576·s/√n wide.
        assert!((few / many - 4.0).abs() < 0.4, "{few} {many}");
        assert!(
            (few - 2.0 * 2.576 * 29.15 / 101f64.sqrt()).abs() < 1.0,
            "{few}"
        );
    }

    #[test]
    fn the_positions_wanted_put_the_end_of_the_interval_at_zero() {
        let values: Vec<f64> = (0..100)
            .map(|i| if i % 2 == 0 { 1.5 } else { -1.0 })
            .collect();
        // Mean 0.25, variance 1.5625: 1.5625 · (2.58 / 0.25)².
        assert_eq!(positions_wanted(&values), 167);
    }
}
