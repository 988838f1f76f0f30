//! Angles between recorded queries and keys. Recorded scores do not tell them: they hold a scale, and perhaps a bias or a cap.

use attnscope_compute::attention::Visibility;
use attnscope_compute::kernels::sum_of_squares;

/// Mean cosine of each query with the keys that it sees; NaN where it sees none, or where one of them is zero.
pub(super) fn mean_cosines(
    visibility: &Visibility,
    q: &[f32],
    k: &[f32],
    d_head: usize,
) -> Vec<f32> {
    let unit = |row: &[f32]| -> Vec<f64> {
        let norm = sum_of_squares(row).sqrt();
        row.iter().map(|x| f64::from(*x) / norm).collect()
    };
    let keys: Vec<Vec<f64>> = k.chunks(d_head).map(unit).collect();
    // Sums of the keys before each, so that a row costs d_head and not keys × d_head.
    let mut before = Vec::with_capacity(keys.len() + 1);
    before.push(vec![0.0; d_head]);
    for key in &keys {
        let last: &Vec<f64> = &before[before.len() - 1];
        before.push(last.iter().zip(key).map(|(sum, x)| sum + x).collect());
    }
    let is_finite = before
        .last()
        .is_none_or(|all| all.iter().all(|x| x.is_finite()));
    let mean_cosine = |(query_idx, row): (usize, &[f32])| {
        let n = visibility.n_visible(query_idx);
        let range = visibility.range(query_idx);
        let sum: Vec<f64> = if is_finite && n == range.len() {
            let ends = before[range.end].iter().zip(&before[range.start]);
            ends.map(|(end, start)| end - start).collect()
        } else {
            let seen = range.filter(|key_idx| visibility.sees(query_idx, *key_idx));
            seen.fold(vec![0.0; d_head], |sum, key_idx| {
                sum.iter()
                    .zip(&keys[key_idx])
                    .map(|(sum, x)| sum + x)
                    .collect()
            })
        };
        let product: f64 = unit(row).iter().zip(&sum).map(|(q, k)| q * k).sum();
        (product / n as f64) as f32
    };
    q.chunks(d_head).enumerate().map(mean_cosine).collect()
}

#[cfg(test)]
mod tests {
    use attnscope_compute::attention::Mask;

    use super::*;

    /// Cosine by cosine, over the keys that are seen.
    fn one_by_one(visibility: &Visibility, q: &[f32], k: &[f32], d_head: usize) -> Vec<f32> {
        let cosine = |q: &[f32], k: &[f32]| {
            let product: f32 = q.iter().zip(k).map(|(a, b)| a * b).sum();
            let norm = |row: &[f32]| row.iter().map(|x| x * x).sum::<f32>().sqrt();
            product / norm(q) / norm(k)
        };
        let of_query = |(idx, q): (usize, &[f32])| {
            let keys = k.chunks(d_head).enumerate();
            let seen = keys.filter(|(key_idx, _)| visibility.sees(idx, *key_idx));
            let all: Vec<f32> = seen.map(|(_, k)| cosine(q, k)).collect();
            all.iter().sum::<f32>() / all.len() as f32
        };
        q.chunks(d_head).enumerate().map(of_query).collect()
    }

    fn agree(visibility: &Visibility, zero_key: Option<usize>) -> Vec<f32> {
        const N: usize = 9;
        const D: usize = 4;
        let mut random = fastrand::Rng::with_seed(5);
        let mut rows = || -> Vec<f32> { (0..N * D).map(|_| random.f32() - 0.3).collect() };
        let (q, mut k) = (rows(), rows());
        if let Some(key_idx) = zero_key {
            k[key_idx * D..(key_idx + 1) * D].fill(0.0);
        }
        let found = mean_cosines(visibility, &q, &k, D);
        let expected = one_by_one(visibility, &q, &k, D);
        for (idx, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let is_same = found.is_nan() && expected.is_nan() || (found - expected).abs() < 1e-6;
            assert!(is_same, "query {idx}: {found} {expected}");
        }
        found
    }

    #[test]
    fn cosines_are_means_over_the_keys_that_are_seen() {
        let causal = Visibility::of_self(Mask::with_width(true, None), 9, None);
        agree(&causal, None);
        let mut padded = [true; 9];
        padded[..2].fill(false);
        agree(
            &Visibility::of_self(Mask::with_width(true, None), 9, Some(&padded)),
            None,
        );
        agree(
            &Visibility::of_cross(Mask::with_width(false, None), (9, None), (9, None)),
            None,
        );
        let with_zero = agree(&causal, Some(4));
        assert!(with_zero[3].is_finite() && with_zero[4].is_nan());
    }
}
