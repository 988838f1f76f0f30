//! Norms of groups of columns over all rows of a sequence together.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::context::BlockContext;

/// What a norm of groups makes of each copy of a sequence, before gain and bias; `None` without groups. // resid: [copy · position, width]
///
/// # Errors
/// When the device fails.
pub(super) fn in_groups<O: Ops>(
    context: &BlockContext<'_, O>,
    groups: Option<(usize, f32)>,
    resid: &O::Buffer,
) -> Result<Option<O::Buffer>> {
    let Some(groups) = groups else {
        return Ok(None);
    };
    let host = context.ops.get(resid)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    let n_values = (context.sequence.len() * width).max(1);
    let copies = values.chunks_mut(n_values);
    copies.for_each(|copy| norm_groups(groups, width, copy));
    let mut to = O::Buffer::default();
    context.ops.put_own(values, width, &mut to)?;
    Ok(Some(to))
}

/// Subtracts the mean of each group and divides by its standard deviation. // rows: [row, width]
pub(super) fn norm_groups((n_groups, eps): (usize, f32), width: usize, rows: &mut [f32]) {
    let of_group = width / n_groups.max(1);
    for first in (0..width).step_by(of_group.max(1)) {
        let columns = first..(first + of_group).min(width);
        let values = || {
            let rows = rows.chunks_exact(width.max(1));
            rows.flat_map(|row| row[columns.clone()].iter().map(|value| f64::from(*value)))
        };
        let n = (rows.len() / width.max(1) * columns.len()).max(1) as f64;
        let mean = values().sum::<f64>() / n;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for row in rows.chunks_exact_mut(width.max(1)) {
            let own = row[columns.clone()].iter_mut();
            own.for_each(|value| *value = ((f64::from(*value) - mean) * scale) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_normalised_over_all_rows() {
        // Two groups of two columns: 1, 3, 5, 7 and four equal values.
        let mut rows = [1.0, 3.0, 2.0, 2.0, 5.0, 7.0, 2.0, 2.0];
        norm_groups((2, 0.0625), 4, &mut rows);
        let scale = 1.0 / (5.0f32 + 0.0625).sqrt();
        let expected = [-3.0, -1.0, 0.0, 0.0, 1.0, 3.0, 0.0, 0.0].map(|v| v * scale);
        for (found, expected) in rows.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{rows:?}");
        }
    }
}
