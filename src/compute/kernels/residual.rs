//! Similarity of the rows of a residual, and its largest value.

use rayon::prelude::*;

use super::sum_of_squares;

/// Similarity of a residual's rows, and the size of its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResidualShape {
    /// ‖X − 1x̄ᵀ‖ / ‖X‖, Frobenius, x̄ the mean row.
    pub spread: f64,
    /// Mean cosine over pairs of different rows.
    pub cosine: f64,
    pub max_abs: f64,
    pub median_abs: f64,
    /// Number of rows.
    pub n_rows: usize,
}

/// The largest value of a residual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    pub value: f32,
    /// Median of |residual|.
    pub median: f32,
    pub position_idx: usize,
    pub column_idx: usize,
}

/// Rows whose directions are summed in f32 before the sum is added in f64; also the rows of one task.
const CHUNK_ROWS: usize = 64;

/// Statistics of some rows.
struct Part {
    /// Σ x in f64: its square is later subtracted from a sum of similar size, so no digits may be lost. // [column]
    sum: Vec<f64>,
    /// Σ x/‖x‖. // [column]
    directions: Vec<f32>,
    /// Σ ‖x‖².
    squared: f64,
    /// Largest |x|, with its position and column.
    peak: (f32, usize, usize),
}

impl Part {
    fn of(rows: &[(usize, &[f32])], width: usize) -> Self {
        let mut part = Self {
            sum: vec![0.0; width],
            directions: vec![0.0; width],
            squared: 0.0,
            peak: (0.0, 0, 0),
        };
        for (position_idx, row) in rows {
            let of_row = sum_of_squares(row);
            part.squared += of_row;
            let inverse = of_row.sqrt().recip() as f32;
            let columns = part.sum.iter_mut().zip(&mut part.directions);
            for ((sum, direction), value) in columns.zip(*row) {
                *sum += f64::from(*value);
                *direction += value * inverse;
            }
            let largest = row.iter().fold(
                0.0f32,
                |most, v| if v.abs() > most { v.abs() } else { most },
            );
            if largest > part.peak.0 || of_row.is_nan() {
                part.look_for_peak(*position_idx, row);
            }
        }
        part
    }

    fn look_for_peak(&mut self, position_idx: usize, row: &[f32]) {
        for (column_idx, value) in row.iter().enumerate() {
            // A NaN counts as the largest value: nothing replaces it afterwards.
            if value.abs() > self.peak.0 || (value.is_nan() && !self.peak.0.is_nan()) {
                self.peak = (value.abs(), position_idx, column_idx);
            }
        }
    }
}

/// Computes the shape and the peak over rows of real positions; `None` without any. // values: [position, width]
#[must_use]
pub fn shape_of(
    values: &[f32],
    width: usize,
    is_real: &dyn Fn(usize) -> bool,
) -> Option<(ResidualShape, Peak)> {
    let rows: Vec<(usize, &[f32])> = values
        .chunks(width)
        .enumerate()
        .filter(|(position_idx, _)| is_real(*position_idx))
        .collect();
    let n = rows.len() as f64;
    let parts: Vec<Part> = rows
        .par_chunks(CHUNK_ROWS)
        .map(|rows| Part::of(rows, width))
        .collect();
    let (mut sum, mut directions) = (vec![0.0f64; width], vec![0.0f64; width]);
    let (mut squared, mut peak) = (0.0, (0.0f32, 0, 0));
    for part in &parts {
        let columns = sum.iter_mut().zip(&part.sum);
        columns.for_each(|(sum, part)| *sum += part);
        let columns = directions.iter_mut().zip(&part.directions);
        columns.for_each(|(sum, part)| *sum += f64::from(*part));
        squared += part.squared;
        if part.peak.0 > peak.0 || (part.peak.0.is_nan() && !peak.0.is_nan()) {
            peak = part.peak;
        }
    }
    let square = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
    // Σ‖x − x̄‖² = Σ‖x‖² − n‖x̄‖²; the mean over pairs of cosines is (‖Σ x/‖x‖‖² − n) / n(n − 1).
    let apart = (squared - square(&sum) / n).max(0.0);
    let median = median_abs(&rows)?;
    let shape = ResidualShape {
        spread: (apart / squared).sqrt(),
        cosine: (square(&directions) - n) / (n * (n - 1.0)),
        max_abs: f64::from(peak.0),
        median_abs: f64::from(median),
        n_rows: rows.len(),
    };
    let (_, position_idx, column_idx) = peak;
    let peak = Peak {
        value: values[position_idx * width + column_idx],
        median,
        position_idx,
        column_idx,
    };
    Some((shape, peak))
}

/// Buckets of |value| by the upper half of its bits; those from the bucket of infinity on may hold NaN.
const N_BUCKETS: usize = 1 << 15;
/// Number of counting tasks; each has one counter per bucket.
const N_COUNTS: usize = 8;

/// Up to this many values are selected directly instead of counted.
const FEW: usize = 1 << 15;

/// The exact median of |value|.
fn median_abs(rows: &[(usize, &[f32])]) -> Option<f32> {
    let n: usize = rows.iter().map(|(_, row)| row.len()).sum();
    if n > FEW {
        return median_of_many(rows);
    }
    let values = rows.iter().flat_map(|(_, row)| row.iter());
    let mut bits: Vec<u32> = values.map(|value| value.abs().to_bits()).collect();
    // NaN has larger bits than infinity.
    if bits.iter().any(|bits| *bits > f32::INFINITY.to_bits()) {
        return Some(f32::NAN);
    }
    let (_, median, _) = (n > 0).then(|| bits.select_nth_unstable(n / 2))?;
    Some(f32::from_bits(*median))
}

/// The exact median of |value|: counts values by the upper half of their bits, then selects within the middle bucket.
fn median_of_many(rows: &[(usize, &[f32])]) -> Option<f32> {
    let bits = |value: &f32| value.abs().to_bits();
    let of_task = rows.len().div_ceil(N_COUNTS).max(1);
    let count = |rows: &[(usize, &[f32])]| {
        let mut counts = vec![0u32; N_BUCKETS];
        for value in rows.iter().flat_map(|(_, row)| row.iter()) {
            counts[(bits(value) >> 16) as usize] += 1;
        }
        counts
    };
    let counts: Vec<Vec<u32>> = rows.par_chunks(of_task).map(count).collect();
    let in_bucket = |bucket: usize| counts.iter().map(|of| of[bucket] as usize).sum::<usize>();
    let n: usize = (0..N_BUCKETS).map(in_bucket).sum();
    // NaN has larger bits than infinity.
    let infinity = (f32::INFINITY.to_bits() >> 16) as usize;
    if (infinity..N_BUCKETS).any(|bucket| in_bucket(bucket) > 0)
        && rows.iter().any(|(_, row)| row.iter().any(|v| v.is_nan()))
    {
        return Some(f32::NAN);
    }
    let mut n_before = 0;
    let bucket = (0..N_BUCKETS).find(|bucket| {
        n_before += in_bucket(*bucket);
        n_before > n / 2
    })?;
    n_before -= in_bucket(bucket);
    let shared = |rows: &[(usize, &[f32])]| -> Vec<u32> {
        let all = rows.iter().flat_map(|(_, row)| row.iter()).map(bits);
        all.filter(|bits| (bits >> 16) as usize == bucket).collect()
    };
    let mut inside: Vec<u32> = rows.par_chunks(of_task).flat_map_iter(shared).collect();
    let (_, median, _) = inside.select_nth_unstable(n / 2 - n_before);
    Some(f32::from_bits(*median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_have_no_spread_and_cosine_one() {
        let values = [3.0, -4.0, 3.0, -4.0, 99.0, 99.0];
        let found = shape_of(&values, 2, &|position_idx| position_idx < 2);
        let (shape, peak) = found.expect("two rows");
        assert!(shape.spread < 1e-7 && (shape.cosine - 1.0).abs() < 1e-6);
        assert_eq!(
            (peak.value, peak.position_idx, peak.column_idx),
            (-4.0, 0, 1)
        );
        assert_eq!(peak.median, 4.0);
    }

    #[test]
    fn the_median_matches_sorting() {
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
        assert_eq!(median_of_many(&[(0, &values)]), Some(sorted[499]));
        assert_eq!(median_of_many(&[]), None);
    }

    #[test]
    fn a_nan_makes_the_median_nan_for_any_number_of_values() {
        for n in [3, FEW + 1] {
            let mut values = vec![1.0; n];
            values[n / 2] = f32::INFINITY;
            assert_eq!(median_abs(&[(0, &values)]), Some(1.0));
            values[n - 1] = -f32::NAN;
            assert!(median_abs(&[(0, &values)]).is_some_and(f32::is_nan));
        }
    }
}
