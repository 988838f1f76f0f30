//! Convolutions over a plane: the frames and bands of a spectrogram, or the patches of a picture.

use std::borrow::Cow;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, HostLinear, HostWeight, Ops};
use attnscope_spec::PlaneConvolution;

use super::weights::WeightReader;

/// Upper limit of values that are gathered at once.
const MOST_GATHERED: usize = 1 << 22;

/// A plane with some channels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plane {
    /// [row, column, channel]
    pub values: Vec<f32>,
    pub n_rows: usize,
    pub n_columns: usize,
    pub n_channels: usize,
}

impl Plane {
    /// The rows of a spectrogram, as one channel.
    pub(super) fn of_rows(rows: Vec<f32>, n_columns: usize) -> Self {
        Self {
            n_rows: rows.len() / n_columns.max(1),
            values: rows,
            n_columns,
            n_channels: 1,
        }
    }

    /// The patches of a picture, row by row.
    ///
    /// # Errors
    /// When there are not as many as the grid has places.
    pub(super) fn of_patches(
        values: Vec<f32>,
        n_channels: usize,
        [n_rows, n_columns]: [usize; 2],
    ) -> Result<Self> {
        let n = values.len() / n_channels.max(1);
        if n != n_rows * n_columns {
            let problem = format!(
                "expected the {} patches of a grid of {n_rows} × {n_columns}, found {n}",
                n_rows * n_columns
            );
            return Err(Error::Prompt(problem));
        }
        Ok(Self {
            values,
            n_rows,
            n_columns,
            n_channels,
        })
    }

    /// The means of bins of rows and columns, which share those that lie in two. // [bin, bin, channel]
    pub(super) fn means(&self, n_bins: usize) -> Self {
        let bin = |nth: usize, n: usize| nth * n / n_bins..((nth + 1) * n).div_ceil(n_bins);
        let mut values = Vec::with_capacity(n_bins * n_bins * self.n_channels);
        for (row, column) in (0..n_bins).flat_map(|row| (0..n_bins).map(move |at| (row, at))) {
            let (rows, columns) = (bin(row, self.n_rows), bin(column, self.n_columns));
            let n = (rows.len() * columns.len()).max(1) as f64;
            let mut sums = vec![0.0f64; self.n_channels];
            for (y, x) in rows.flat_map(|y| columns.clone().map(move |x| (y, x))) {
                let first = (y * self.n_columns + x) * self.n_channels;
                let from = &self.values[first..first + self.n_channels];
                let pairs = sums.iter_mut().zip(from);
                pairs.for_each(|(sum, value)| *sum += f64::from(*value));
            }
            values.extend(sums.into_iter().map(|sum| (sum / n) as f32));
        }
        Self {
            values,
            n_rows: n_bins,
            n_columns: n_bins,
            n_channels: self.n_channels,
        }
    }

    /// The plane whose rows are the columns of this one.
    pub(super) fn turned(&self) -> Self {
        let n = self.n_channels.max(1);
        let columns = 0..self.n_columns;
        let places = columns.flat_map(|column| {
            (0..self.n_rows).map(move |row| (row * self.n_columns + column) * n)
        });
        Self {
            values: places
                .flat_map(|first| self.values[first..first + self.n_channels].iter().copied())
                .collect(),
            n_rows: self.n_columns,
            n_columns: self.n_rows,
            n_channels: self.n_channels,
        }
    }

    /// Its rows, with the columns of a channel beside each other. // [row, channel · column]
    pub(super) fn into_rows(self) -> (Vec<f32>, usize) {
        let width = self.n_columns * self.n_channels;
        let mut rows = vec![0.0; self.values.len()];
        let pairs = self
            .values
            .chunks(width.max(1))
            .zip(rows.chunks_mut(width.max(1)));
        for (from, to) in pairs {
            for (column, channels) in from.chunks(self.n_channels.max(1)).enumerate() {
                for (channel, value) in channels.iter().enumerate() {
                    to[channel * self.n_columns + column] = *value;
                }
            }
        }
        (rows, width)
    }
}

/// Convolves a plane.
///
/// # Errors
/// When a tensor differs from its spec, or the device fails.
pub(super) fn convolve<O: Ops>(
    spec: &PlaneConvolution,
    activation: Activation,
    plane: &Plane,
    shelf: WeightReader<'_, O>,
) -> Result<Plane> {
    let weight = shelf.tensors.expect(&spec.weight, &spec.shape())?.widen()?;
    convolve_by(spec, weight, activation, plane, shelf)
}

/// Convolves a plane with a kernel that was read. // weight: as its spec has it
///
/// # Errors
/// As for [`convolve`].
pub(super) fn convolve_by<O: Ops>(
    spec: &PlaneConvolution,
    weight: Cow<'_, [f32]>,
    activation: Activation,
    plane: &Plane,
    shelf: WeightReader<'_, O>,
) -> Result<Plane> {
    let n_rows = spec.n_along(plane.n_rows, 0);
    let n_columns = spec.n_along(plane.n_columns, 1);
    let bias = match &spec.bias {
        Some(name) => Some(shelf.vector(name, spec.n_out)?),
        None => None,
    };
    let mut values = Vec::with_capacity(n_rows * n_columns * spec.n_out);
    if spec.is_by_channel {
        let bias = bias.map_or(vec![0.0; spec.n_out], |bias| bias.into_owned());
        for row in 0..n_rows {
            values.extend(by_channel(spec, (&weight, &bias), plane, (row, n_columns)));
        }
    } else {
        let width = spec.n_in * spec.n_read();
        let linear = shelf.ops.linear_weights(HostLinear {
            n_out: spec.n_out,
            n_in: width,
            weight: HostWeight::F32(weight),
            is_input_major: false,
            bias,
            grams: Default::default(),
        })?;
        let at_once = (MOST_GATHERED / (width * n_columns).max(1)).max(1);
        let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
        for first in (0..n_rows).step_by(at_once) {
            let rows = first..(first + at_once).min(n_rows);
            let around: Vec<f32> = rows
                .flat_map(|row| around(spec, plane, row, n_columns))
                .collect();
            shelf.ops.put(&around, width, &mut from)?;
            shelf.ops.linear(&from, &linear, &mut to, shelf.pace)?;
            values.extend_from_slice(&shelf.ops.get(&to)?.values);
        }
    }
    if spec.is_activated {
        let mut buffer = O::Buffer::default();
        shelf.ops.put(&values, spec.n_out, &mut buffer)?;
        shelf.ops.activate(activation, &mut buffer)?;
        values = shelf.ops.get(&buffer)?.values.into_owned();
    }
    Ok(Plane {
        values,
        n_rows,
        n_columns,
        n_channels: spec.n_out,
    })
}

/// The channels at a place of a kernel over an output; `None` beyond the ends of the plane.
fn channels<'a>(
    spec: &PlaneConvolution,
    plane: &'a Plane,
    at: [usize; 2],
    in_kernel: [usize; 2],
) -> Option<&'a [f32]> {
    let place = |nth: usize, n: usize| {
        let place = if spec.is_line && nth == 1 {
            at[nth]
        } else {
            let place = at[nth] * spec.strides[nth] + in_kernel[nth] * spec.apart;
            place.checked_sub(spec.padding[0])?
        };
        (place < n).then_some(place)
    };
    let (row, column) = (place(0, plane.n_rows)?, place(1, plane.n_columns)?);
    let first = (row * plane.n_columns + column) * plane.n_channels;
    Some(&plane.values[first..first + plane.n_channels])
}

/// The inputs of a row of outputs. // [column, channel · kernel row · kernel column]
fn around(spec: &PlaneConvolution, plane: &Plane, row: usize, n_columns: usize) -> Vec<f32> {
    let (n_read, across) = (spec.n_read(), spec.n_across().max(1));
    let width = spec.n_in * n_read;
    let mut around = vec![0.0; n_columns * width];
    for (column, to) in around.chunks_mut(width.max(1)).enumerate() {
        for nth in 0..n_read {
            let in_kernel = [nth / across, nth % across];
            let Some(from) = channels(spec, plane, [row, column], in_kernel) else {
                continue;
            };
            for (channel, value) in from.iter().enumerate() {
                to[channel * n_read + nth] = *value;
            }
        }
    }
    around
}

/// A row of outputs, each channel by itself. // [column, channel]
fn by_channel(
    spec: &PlaneConvolution,
    (weight, bias): (&[f32], &[f32]),
    plane: &Plane,
    (row, n_columns): (usize, usize),
) -> Vec<f32> {
    let (n_in_kernel, across) = (spec.n_read(), spec.n_across().max(1));
    let mut sums = bias.repeat(n_columns);
    for (column, sums) in sums.chunks_mut(spec.n_out.max(1)).enumerate() {
        for nth in 0..n_in_kernel {
            let in_kernel = [nth / across, nth % across];
            let Some(from) = channels(spec, plane, [row, column], in_kernel) else {
                continue;
            };
            let weights = weight[nth..].iter().step_by(n_in_kernel);
            for ((sum, value), weight) in sums.iter_mut().zip(from).zip(weights) {
                *sum += value * weight;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(padding: [usize; 2], is_by_channel: bool) -> PlaneConvolution {
        PlaneConvolution {
            weight: String::new(),
            bias: None,
            n_in: 1,
            n_out: 1,
            is_by_channel,
            is_line: false,
            apart: 1,
            n_wide: 3,
            strides: [2; 2],
            padding,
            is_activated: false,
        }
    }

    #[test]
    fn what_lies_beyond_a_plane_is_zero() {
        let plane = Plane::of_rows((1..=9).map(|v| v as f32).collect(), 3);
        let both = spec([1, 1], false);
        assert_eq!(
            (both.n_along(3, 0), spec([2, 1], false).n_along(3, 1)),
            (2, 2)
        );
        let first = around(&both, &plane, 0, 2);
        assert_eq!(first[..9], [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 4.0, 5.0]);
        assert_eq!(first[9..], [0.0, 0.0, 0.0, 2.0, 3.0, 0.0, 5.0, 6.0, 0.0]);
        let before = around(&spec([2, 1], false), &plane, 0, 1);
        assert_eq!(before[8], 1.0);
        assert!(before[..8].iter().all(|value| *value == 0.0));
    }

    #[test]
    fn a_kernel_by_channel_gives_what_its_gathered_inputs_give() {
        let plane = Plane::of_rows((1..=12).map(|v| (v * v) as f32).collect(), 4);
        let (kernel, one) = (
            (1..=9).map(|v| v as f32).collect::<Vec<f32>>(),
            spec([1, 1], true),
        );
        let found = by_channel(&one, (&kernel, &[0.5]), &plane, (1, 2));
        let expected = around(&one, &plane, 1, 2);
        for (found, from) in found.iter().zip(expected.chunks(9)) {
            let sum: f32 = from.iter().zip(&kernel).map(|(a, b)| a * b).sum();
            assert_eq!(*found, sum + 0.5);
        }
    }

    #[test]
    fn a_line_reads_the_rows_of_its_column_alone() {
        let plane = Plane::of_rows((1..=5).map(|v| v as f32).collect(), 1);
        let line = PlaneConvolution {
            is_line: true,
            strides: [1; 2],
            ..spec([1, 1], false)
        };
        assert_eq!((line.to([5, 1]), line.shape()), ([5, 1], vec![1, 1, 3]));
        assert_eq!(around(&line, &plane, 0, 1), [0.0, 1.0, 2.0]);
        let apart = PlaneConvolution { apart: 2, ..line };
        assert_eq!(apart.to([5, 1]), [3, 1]);
        assert_eq!(around(&apart, &plane, 1, 1), [1.0, 3.0, 5.0]);
        let by_channel = PlaneConvolution {
            is_by_channel: true,
            ..apart
        };
        let kernel = [1.0, 10.0, 100.0];
        assert_eq!(
            by_channel_of(&by_channel, &kernel, &plane),
            [420.0, 531.0, 42.0]
        );
    }

    /// All outputs of a kernel by channel, without a bias.
    fn by_channel_of(one: &PlaneConvolution, kernel: &[f32], plane: &Plane) -> Vec<f32> {
        let rows = 0..one.n_along(plane.n_rows, 0);
        rows.flat_map(|row| by_channel(one, (kernel, &[0.0]), plane, (row, 1)))
            .collect()
    }

    #[test]
    fn bins_that_do_not_divide_a_side_share_lines() {
        let plane = Plane::of_rows(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2);
        // Rows 0 and 1, then 1 and 2.
        assert_eq!(plane.means(2).values, [2.0, 3.0, 4.0, 5.0]);
        // More bins than columns: each column fills two.
        let wider = plane.means(4);
        assert_eq!(wider.values[..4], [1.0, 1.0, 2.0, 2.0]);
        assert_eq!(wider.values[12..], [5.0, 5.0, 6.0, 6.0]);
        let short = Plane::of_patches(vec![0.0; 10], 2, [2, 3]).expect_err("five patches");
        assert!(short.to_string().contains("found 5"), "{short}");
    }

    #[test]
    fn columns_of_a_channel_stand_beside_each_other() {
        let plane = Plane {
            values: vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0],
            n_rows: 1,
            n_columns: 3,
            n_channels: 2,
        };
        assert_eq!(plane.turned().values, plane.values);
        let turned = Plane::of_rows(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3).turned();
        assert_eq!(turned.values, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!((turned.n_rows, turned.n_columns), (3, 2));
        assert_eq!(
            plane.into_rows(),
            (vec![1.0, 2.0, 3.0, 10.0, 20.0, 30.0], 6)
        );
    }
}
