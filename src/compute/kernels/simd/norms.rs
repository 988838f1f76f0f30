//! Euclidean norms of rows.

use super::lanes::Lanes;
use super::level::{Kernel, Level};

/// ‖row‖ of some rows of `width` values, `stride` apart.
///
/// # Panics
/// When the last row is not within `from`.
pub fn row_norms(
    level: Level,
    from: &[f32],
    stride: usize,
    n_rows: usize,
    width: usize,
) -> Vec<f32> {
    level.run(RowNorms {
        from,
        stride,
        n_rows,
        width,
    })
}

struct RowNorms<'a> {
    from: &'a [f32],
    stride: usize,
    n_rows: usize,
    width: usize,
}

impl Kernel for RowNorms<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> Vec<f32> {
        let mut norms = Vec::with_capacity(self.n_rows);
        for row_idx in 0..self.n_rows {
            let row = &self.from[row_idx * self.stride..][..self.width];
            let vectors = L::vectors(row);
            let mut sum = l.splat(0.0);
            for vector in vectors {
                sum = l.mul_add(*vector, *vector, sum);
            }
            let rest = row[vectors.len() * L::N..].iter().map(|v| v * v);
            let squares = l.sum(sum) + rest.sum::<f32>();
            // Squares outside the range or full precision of f32 are summed in f64; so are rows with a NaN.
            let norm = if (1e-30..1e37).contains(&squares) {
                squares.sqrt()
            } else {
                crate::kernels::sum_of_squares(row).sqrt() as f32
            };
            norms.push(norm);
        }
        norms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_are_right_for_numbers_of_every_size() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            for size in [1e-25f32, 1e-3, 1.0, 1e25] {
                let row: Vec<f32> = (0..37).map(|i| (i as f32 - 11.0) * size).collect();
                let wide = row.iter().map(|v| f64::from(*v) * f64::from(*v));
                let expected = wide.sum::<f64>().sqrt();
                let found = f64::from(row_norms(level, &row, 37, 1, 37)[0]);
                assert!(
                    (found / expected - 1.0).abs() < 1e-6,
                    "{level:?} {found} {expected}"
                );
            }
            assert!(row_norms(level, &[1.0, f32::NAN], 2, 1, 2)[0].is_nan());
        }
    }
}
