//! Accurate sums of squares.

/// Σ v², accumulated in f64.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    // Eight separate sums, which the compiler keeps in vectors.
    let (chunks, rest) = values.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*v) * f64::from(*v);
        }
    }
    let rest: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    sums.iter().sum::<f64>() + rest
}
