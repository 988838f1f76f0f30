//! Inner products and sums of vectors, and column ranges of rows.

/// The inner product, summed in order.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inner product in f32, summed in sixteen lanes.
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    // Several sums, which the compiler keeps in vector registers.
    let mut sums = [0.0f32; 16];
    let (a, a_rest) = a.as_chunks::<16>();
    let (b, b_rest) = b.as_chunks::<16>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Adds a multiple of one vector to another.
pub fn add_scaled(sum: &mut [f32], values: &[f32], by: f32) {
    let pairs = sum.iter_mut().zip(values);
    pairs.for_each(|(sum, value)| *sum += by * value);
}

/// A range of columns of all rows. // [row, width] → [row, columns]
///
/// # Panics
/// When a row is too short.
pub fn columns(rows: &[f32], width: usize, first: usize, n: usize) -> Vec<f32> {
    let rows = rows.chunks(width.max(1));
    let mut taken = Vec::with_capacity(rows.len() * n);
    rows.for_each(|row| taken.extend_from_slice(&row[first..first + n]));
    taken
}
