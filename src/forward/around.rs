//! The rows around each row, side by side, as the kernel of a convolution over rows reads them.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::LinearSource;

use super::context::BlockContext;
use super::mixer::each_copy;

/// Which rows stand around each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    /// Values of a row.
    pub n_in: usize,
    pub n_wide: usize,
    /// Rows from one output to the next.
    pub stride: usize,
    /// Zeros before the first row, and behind the last.
    pub padding: [usize; 2],
}

impl Around {
    /// Gathers them, channel by channel. // rows: [row, n_in] → [output, n_in · n_wide]
    pub fn of(self, rows: &[f32]) -> Vec<f32> {
        let (n, wide) = (rows.len() / self.n_in.max(1), self.n_wide);
        let [n_before, n_behind] = self.padding;
        let n_left = (n + n_before + n_behind).checked_sub(wide);
        let n_left = n_left.filter(|_| n > 0);
        let n_out = n_left.map_or(0, |left| left / self.stride.max(1) + 1);
        let mut around = vec![0.0; n_out * self.n_in * wide];
        let each = around.chunks_mut((self.n_in * wide).max(1)).enumerate();
        for (position_idx, to) in each {
            for nth in 0..wide {
                let row_idx = (position_idx * self.stride + nth).checked_sub(n_before);
                let Some(row_idx) = row_idx.filter(|row_idx| *row_idx < n) else {
                    continue;
                };
                let from = &rows[row_idx * self.n_in..][..self.n_in];
                for (channel_idx, value) in from.iter().enumerate() {
                    to[channel_idx * wide + nth] = *value;
                }
            }
        }
        around
    }
}

/// What a map reads of each copy of the rows: the rows themselves, or those around each if it is a convolution over them.
pub(super) fn read_by<'b, O: Ops>(
    context: &BlockContext<'_, O>,
    map: &LinearSource,
    rows: &'b O::Buffer,
    spare: &'b mut O::Buffer,
) -> Result<&'b O::Buffer> {
    let Some([n_in, n_wide]) = map.over_rows() else {
        return Ok(rows);
    };
    let around = Around {
        n_in,
        n_wide,
        stride: 1,
        padding: [(n_wide - 1) / 2, n_wide / 2],
    };
    let values = context.ops.get(rows)?.values.into_owned();
    let n_rows = values.len() / n_in.max(1);
    let gathered = each_copy(context, n_rows, None, |of_copy, _| {
        around.of(&values[of_copy.start * n_in..of_copy.end * n_in])
    });
    context.ops.put_own(gathered, map.n_in, spare)?;
    Ok(spare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_windows_are_channel_major_and_padded_with_zeros() {
        let around = Around {
            n_in: 2,
            n_wide: 3,
            stride: 2,
            padding: [1; 2],
        };
        let rows: Vec<f32> = (1..=8).map(|v| v as f32).collect(); // four rows of two
        let gathered = around.of(&rows);
        assert_eq!(gathered[..6], [0.0, 1.0, 3.0, 0.0, 2.0, 4.0]);
        assert_eq!(gathered[6..], [3.0, 5.0, 7.0, 4.0, 6.0, 8.0]);
    }
}
