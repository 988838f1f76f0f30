//! Conversion between head-major and position-major order.

/// Reorders [head, position, d_head] to [position, head, d_head].
pub(super) fn from_heads_first(values: &[f32], n_heads: usize, d_head: usize) -> Vec<f32> {
    exchanged(
        values,
        n_heads,
        values.len() / (n_heads * d_head).max(1),
        d_head,
    )
}

/// Reorders [position, head, d_head] to [head, position, d_head].
pub(super) fn to_heads_first(values: &[f32], n_heads: usize, d_head: usize) -> Vec<f32> {
    exchanged(
        values,
        values.len() / (n_heads * d_head).max(1),
        n_heads,
        d_head,
    )
}

/// Reorders every row of [height, width] to [width, height].
pub(super) fn transposed_rows(values: &[f32], height: usize, width: usize) -> Vec<f32> {
    let rows = values.chunks((height * width).max(1));
    rows.flat_map(|row| exchanged(row, height, width, 1))
        .collect()
}

/// [outer, inner, width] → [inner, outer, width].
fn exchanged(values: &[f32], n_outer: usize, n_inner: usize, width: usize) -> Vec<f32> {
    let mut moved = Vec::with_capacity(values.len());
    for inner in 0..n_inner {
        for outer in 0..n_outer {
            moved.extend_from_slice(&values[(outer * n_inner + inner) * width..][..width]);
        }
    }
    moved
}
