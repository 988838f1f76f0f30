//! Rounds weights to a narrower format after they were read (a what-if).

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::{BlockFormat, NumberFormat};
use attnscope_compute::ops::{HostLinear, HostWeight};
use attnscope_compute::pace::Pace;
use attnscope_spec::{LinearSource, MapScale, Part, ScaleOver, WeightFormat};
use rayon::prelude::*;

use super::weights::{Fused, read_linear};

/// Number of values that one task rounds.
const AT_ONCE: usize = 1 << 16;

/// The largest absolute value of a stored matrix, if it holds more than the map that is rounded: one scale is for all of it.
pub(super) fn largest_beside(
    tensors: &Tensors,
    source: &LinearSource,
    pace: &dyn Pace,
) -> Result<Option<f32>> {
    let is_shared = source.part.len < source.part.group;
    if !is_shared || source.rounded != Some(WeightFormat::Fp8(ScaleOver::Map)) {
        return Ok(None);
    }
    let whole = LinearSource {
        bias: None,
        part: Part {
            group: source.n_stored_out,
            offset: 0,
            len: source.n_stored_out,
        },
        scale: MapScale::ONE,
        factors: None,
        rounded: None,
        ..source.clone()
    };
    let whole = read_linear(tensors, &whole, false, &Fused::default(), pace)?;
    Ok(Some(largest(&whole.widened())))
}

/// Rounds a map. A format of single values rounds its bias too. `largest_of_all` is the largest absolute value that a scale is for,
/// if it is not that of the map.
pub(super) fn rounded(
    mut linear: HostLinear<'_>,
    format: Option<WeightFormat>,
    largest_of_all: Option<f32>,
) -> HostLinear<'_> {
    let Some(format) = format else {
        return linear;
    };
    let mut values = linear.widened().into_owned();
    match format {
        WeightFormat::Number(number) => {
            round_all(number, &mut values);
            if let Some(bias) = &mut linear.bias {
                round_all(number, bias.to_mut());
            }
        }
        WeightFormat::Fp8(ScaleOver::Map) => {
            let scale = Scale::of(largest_of_all.unwrap_or_else(|| largest(&values)));
            let parts = values.par_chunks_mut(AT_ONCE);
            parts.for_each(|part| part.iter_mut().for_each(|v| *v = scale.round(*v)));
        }
        WeightFormat::Fp8(ScaleOver::Channel) => round_channels(&linear, &mut values),
        WeightFormat::Blocks(blocks) => round_outputs(blocks, &linear, &mut values),
    }
    linear.weight = HostWeight::F32(Cow::Owned(values));
    linear
}

/// Rounds the weights of each output with a scale of their own.
fn round_channels(linear: &HostLinear<'_>, values: &mut [f32]) {
    if !linear.is_input_major {
        return values.par_chunks_mut(linear.n_in.max(1)).for_each(|row| {
            let scale = Scale::of(largest(row));
            row.iter_mut().for_each(|v| *v = scale.round(*v));
        });
    }
    let mut most = vec![0.0f32; linear.n_out];
    for row in values.chunks(linear.n_out.max(1)) {
        let pairs = most.iter_mut().zip(row);
        pairs.for_each(|(most, value)| *most = further(*most, *value));
    }
    let scales: Vec<Scale> = most.into_iter().map(Scale::of).collect();
    values.par_chunks_mut(linear.n_out.max(1)).for_each(|row| {
        let pairs = row.iter_mut().zip(&scales);
        pairs.for_each(|(v, scale)| *v = scale.round(*v));
    });
}

/// Rounds the weights of each output in blocks.
fn round_outputs(format: BlockFormat, linear: &HostLinear<'_>, values: &mut [f32]) {
    let (n_in, n_out) = (linear.n_in, linear.n_out);
    let Some(format) = format.of_width(n_in) else {
        return;
    };
    if !linear.is_input_major {
        return round_in_blocks(format, n_in, values);
    }
    // [n_in, n_out]: an output is a column.
    let mut rows: Vec<f32> = (0..n_out)
        .flat_map(|out| (0..n_in).map(move |at| (out, at)))
        .map(|(out, at)| values[at * n_out + out])
        .collect();
    round_in_blocks(format, n_in, &mut rows);
    for (out, row) in rows.chunks(n_in).enumerate() {
        let at = row.iter().enumerate();
        at.for_each(|(at, value)| values[at * n_out + out] = *value);
    }
}

fn round_in_blocks(format: BlockFormat, width: usize, values: &mut [f32]) {
    let rows = values.par_chunks_mut(width);
    rows.for_each(|row| format.round_row(row));
}

/// Rounds rows of a table, where there is a format of tables.
pub fn round_rows(
    values: Cow<'_, [f32]>,
    width: usize,
    format: Option<WeightFormat>,
) -> Cow<'_, [f32]> {
    match format {
        Some(WeightFormat::Number(number)) => round_read(values, Some(number)),
        Some(WeightFormat::Blocks(blocks)) => match blocks.of_width(width) {
            Some(blocks) => {
                let mut values = values.into_owned();
                round_in_blocks(blocks, width, &mut values);
                Cow::Owned(values)
            }
            None => values,
        },
        Some(WeightFormat::Fp8(_)) | None => values,
    }
}

/// Rounds single values in place.
pub(super) fn round_all(format: NumberFormat, values: &mut [f32]) {
    values
        .par_chunks_mut(AT_ONCE)
        .for_each(|part| format.round_all(part));
}

/// Rounds values that were read, where there is a format.
pub(super) fn round_read<'a>(
    values: Cow<'a, [f32]>,
    format: Option<NumberFormat>,
) -> Cow<'a, [f32]> {
    let Some(format) = format else {
        return values;
    };
    let mut values = values.into_owned();
    round_all(format, &mut values);
    Cow::Owned(values)
}

/// The scale of some fp8 weights: their largest absolute value becomes the largest fp8 number.
#[derive(Debug, Clone, Copy)]
struct Scale {
    scale: f32,
    inverse: f32,
}

impl Scale {
    fn of(largest: f32) -> Self {
        let scale = largest / NumberFormat::E4m3.largest();
        Self {
            scale,
            inverse: 1.0 / scale,
        }
    }

    fn round(self, value: f32) -> f32 {
        if self.scale == 0.0 {
            return value;
        }
        NumberFormat::E4m3.round(value * self.inverse) * self.scale
    }
}

/// The largest absolute value; NaN if there is a NaN.
fn largest(values: &[f32]) -> f32 {
    let parts = values.par_chunks(AT_ONCE);
    let of_part = |part: &[f32]| part.iter().fold(0.0, |most, value| further(most, *value));
    parts.map(of_part).reduce(|| 0.0, further)
}

fn further(most: f32, value: f32) -> f32 {
    if most.is_nan() || value.abs() <= most {
        most
    } else {
        value.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(is_input_major: bool) -> HostLinear<'static> {
        // Two outputs of three inputs; the second output is a thousand times as large.
        let rows = [[0.1, -0.2, 0.33], [100.0, 200.0, -330.0]];
        let values = if is_input_major {
            (0..3).flat_map(|at| [rows[0][at], rows[1][at]]).collect()
        } else {
            rows.concat()
        };
        HostLinear {
            n_out: 2,
            n_in: 3,
            weight: HostWeight::F32(Cow::Owned(values)),
            is_input_major,
            bias: Some(Cow::Owned(vec![0.1, 1e-9])),
            grams: Default::default(),
        }
    }

    #[test]
    fn channels_are_outputs_however_a_map_is_stored() {
        let format = Some(WeightFormat::Fp8(ScaleOver::Channel));
        let (by_row, by_column) = (
            rounded(map(false), format, None),
            rounded(map(true), format, None),
        );
        let (rows, columns) = (by_row.widened(), by_column.widened());
        for out in 0..2 {
            for at in 0..3 {
                assert_eq!(rows[out * 3 + at], columns[at * 2 + out]);
            }
        }
        assert!((rows[2] - 0.33).abs() < 1e-6, "the largest value is exact");
        let together = rounded(map(false), Some(WeightFormat::Fp8(ScaleOver::Map)), None);
        assert_ne!(
            together.widened()[..3],
            rows[..3],
            "one scale of both outputs"
        );
        assert_eq!(together.bias.as_deref(), Some([0.1, 1e-9].as_slice()));
    }

    #[test]
    fn a_map_of_zeros_stays_and_a_nan_is_not_hidden() {
        let mut zeros = map(false);
        zeros.weight = HostWeight::F32(Cow::Owned(vec![0.0; 6]));
        let format = Some(WeightFormat::Fp8(ScaleOver::Map));
        assert!(
            rounded(zeros, format, None)
                .widened()
                .iter()
                .all(|v| *v == 0.0)
        );
        let mut broken = map(false);
        broken.weight = HostWeight::F32(Cow::Owned(vec![1.0, f32::NAN, 2.0, 0.0, 0.0, 0.0]));
        assert!(
            rounded(broken, format, None)
                .widened()
                .iter()
                .all(|v| v.is_nan())
        );
    }
}
