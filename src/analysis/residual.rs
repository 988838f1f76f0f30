//! How alike the rows of a residual are, and its largest value.

use crate::stats::{Peak, ResidualShape};

/// Looks at the rows of real positions. // values: [position, width]
pub(super) fn shape_of(
    values: &[f32],
    width: usize,
    is_real: &dyn Fn(usize) -> bool,
) -> (ResidualShape, Option<Peak>) {
    let rows: Vec<(usize, &[f32])> = values
        .chunks(width)
        .enumerate()
        .filter(|(position_idx, _)| is_real(*position_idx))
        .collect();
    let n = rows.len() as f64;
    let (mut sum, mut directions) = (vec![0.0f64; width], vec![0.0f64; width]);
    let mut squared = 0.0;
    let mut peak = (0.0f32, 0, 0);
    for (position_idx, row) in &rows {
        let of_row: f64 = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        squared += of_row;
        let inverse = of_row.sqrt().recip();
        for (column_idx, value) in row.iter().enumerate() {
            let wide = f64::from(*value);
            sum[column_idx] += wide;
            directions[column_idx] += wide * inverse;
            // A NaN is the largest of all: nothing is larger afterwards.
            if value.abs() > peak.0 || (value.is_nan() && !peak.0.is_nan()) {
                peak = (value.abs(), *position_idx, column_idx);
            }
        }
    }
    let square = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
    // Σ‖x − x̄‖² = Σ‖x‖² − n‖x̄‖²; the mean over pairs of cosines is (‖Σ x/‖x‖‖² − n) / n(n − 1).
    let apart = (squared - square(&sum) / n).max(0.0);
    let Some(median) = median_abs(&rows) else {
        return (ResidualShape::NONE, None);
    };
    let shape = ResidualShape {
        spread: (apart / squared).sqrt(),
        cosine: (square(&directions) - n) / (n * (n - 1.0)),
        max_abs: f64::from(peak.0),
        median_abs: f64::from(median),
    };
    let (_, position_idx, column_idx) = peak;
    let peak = Peak {
        value: values[position_idx * width + column_idx],
        median,
        position_idx,
        column_idx,
    };
    (shape, Some(peak))
}

/// The median of |value|, exactly: counted by the upper half of the bits, then looked for among those that share them.
fn median_abs(rows: &[(usize, &[f32])]) -> Option<f32> {
    const N_BUCKETS: usize = 1 << 15;
    let bits = |value: &f32| value.abs().to_bits();
    let all = || rows.iter().flat_map(|(_, row)| row.iter());
    let mut counts = vec![0usize; N_BUCKETS + 1];
    let mut n = 0;
    for value in all() {
        if value.is_nan() {
            return Some(f32::NAN);
        }
        counts[(bits(value) >> 16) as usize] += 1;
        n += 1;
    }
    let mut n_before = 0;
    let bucket = counts.iter().position(|count| {
        n_before += count;
        n_before > n / 2
    })?;
    n_before -= counts[bucket];
    let mut inside: Vec<u32> = all()
        .map(bits)
        .filter(|bits| (bits >> 16) as usize == bucket)
        .collect();
    let (_, median, _) = inside.select_nth_unstable(n / 2 - n_before);
    Some(f32::from_bits(*median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_have_no_spread_and_cosine_one() {
        let values = [3.0, -4.0, 3.0, -4.0, 99.0, 99.0];
        let (shape, peak) = shape_of(&values, 2, &|position_idx| position_idx < 2);
        assert!(shape.spread < 1e-7 && (shape.cosine - 1.0).abs() < 1e-12);
        let peak = peak.expect("values");
        assert_eq!(
            (peak.value, peak.position_idx, peak.column_idx),
            (-4.0, 0, 1)
        );
        assert_eq!(peak.median, 4.0);
    }

    #[test]
    fn the_median_is_that_of_the_sorted_values() {
        let values: Vec<f32> = (0..999)
            .map(|i| ((i * 7919) % 1000) as f32 * 0.37 - 150.0)
            .collect();
        let mut sorted: Vec<f32> = values.iter().map(|v| v.abs()).collect();
        sorted.sort_by(f32::total_cmp);
        assert_eq!(median_abs(&[(0, &values)]), Some(sorted[499]));
        assert_eq!(
            median_abs(&[(0, &values[..2])]),
            Some(values[0].abs().max(values[1].abs()))
        );
        assert_eq!(median_abs(&[]), None);
    }
}
