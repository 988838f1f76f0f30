//! Convolutional stem of a speech model: makes the rows of a stack before positions are added.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::{Activation, HostLinear, HostWeight, Ops};
use attnscope_prompt::{HEARS, Sound};
use attnscope_spec::{
    AroundKernel, AroundRows, Lengthened, NormSource, SoundStem, StemChunks, StemConvolution,
    StemEnd, StemNorm, StemPlaces,
};

use super::around::Around;
use super::conformer::gated;
use super::embed::add_sinusoids;
use super::planes::{Plane, convolve};
use super::sequence::Sequence;
use super::weights::WeightReader;

/// Computes the rows of a sequence's audio. // [position, d_embed]
///
/// # Errors
/// When the sequence has no audio, a tensor differs from its spec, or the device fails.
pub(super) fn sound_rows<O: Ops>(
    stem: &SoundStem,
    ops: &O,
    tensors: &Tensors,
    sequence: &Sequence,
) -> Result<Vec<f32>> {
    let Some(sound) = sequence.sound.as_deref() else {
        return Err(Error::Prompt(HEARS.to_owned()));
    };
    let pace = &|| false;
    let shelf = WeightReader::new(ops, tensors, pace);
    let (rows, width) = match stem.chunks {
        None => rows_of(stem, &sound.values, sound.n_mels, shelf)?,
        Some(chunks) => rows_of_chunks(stem, chunks, sound, shelf)?,
    };
    // Tokens are indices into the audio's rows, so a part or a reordering of a sequence picks its own rows.
    let mut chosen = Vec::with_capacity(sequence.len() * width);
    for place in &sequence.tokens {
        let at = *place as usize * width;
        let row = rows.get(at..at + width).ok_or_else(|| {
            let n = rows.len() / width.max(1);
            Error::Prompt(format!(
                "position {place} does not exist: the sound has {n} positions"
            ))
        })?;
        chosen.extend_from_slice(row);
    }
    Ok(chosen)
}

/// The rows of chunks of frames, one after another. // [position, width]
fn rows_of_chunks<O: Ops>(
    stem: &SoundStem,
    chunks: StemChunks,
    sound: &Sound,
    shelf: WeightReader<'_, O>,
) -> Result<(Vec<f32>, usize)> {
    let n_values = (chunks.n_frames * sound.n_mels).max(1);
    let is_only = sound.values.len() <= n_values;
    let is_lengthened = match chunks.lengthened {
        Lengthened::Never => false,
        Lengthened::BehindOthers => !is_only,
        Lengthened::Always => true,
    };
    let (mut all, mut width) = (Vec::new(), 0);
    for chunk in sound.values.chunks(n_values) {
        let mut frames = chunk.to_vec();
        if is_lengthened {
            frames.resize(n_values, 0.0);
        }
        let mut rows;
        (rows, width) = rows_of(stem, &frames, sound.n_mels, shelf)?;
        let n_frames = chunk.len() / sound.n_mels.max(1);
        if let Some(steps) = stem.rule.steps {
            rows.truncate(steps.n_positions(n_frames) * width);
        }
        all.extend(rows);
    }
    Ok((all, width))
}

/// The rows of frames that pass through the convolutions together. // [position, width]
fn rows_of<O: Ops>(
    stem: &SoundStem,
    frames: &[f32],
    n_mels: usize,
    shelf: WeightReader<'_, O>,
) -> Result<(Vec<f32>, usize)> {
    let (ops, pace) = (shelf.ops, shelf.pace);
    let (mut rows, mut width) = first_rows(stem, frames, n_mels, shelf)?; // [frame, channel]
    let (mut around, mut to) = (O::Buffer::default(), O::Buffer::default());
    for one in &stem.convolutions {
        ops.put(
            &around_of(one).of(&rows),
            one.n_in * one.n_wide,
            &mut around,
        )?;
        ops.linear(&around, &linear_of(one, shelf)?, &mut to, pace)?; // [position, channel]
        match &one.norm {
            None => {}
            Some(StemNorm::Row(norm)) => {
                ops.norm(&to, &shelf.norm(norm)?, &mut around)?;
                std::mem::swap(&mut to, &mut around);
            }
            Some(StemNorm::Channel(norm)) => {
                let mut values = ops.get(&to)?.values.into_owned();
                norm_channels(norm, false, shelf, &mut values)?;
                ops.put(&values, one.n_mapped(), &mut to)?;
            }
        }
        rows = if one.is_gated {
            gated(&ops.get(&to)?.values, one.n_out, Activation::Sigmoid)
        } else {
            ops.activate(one.activation.unwrap_or(stem.activation), &mut to)?;
            ops.get(&to)?.values.into_owned()
        };
        if let Some(norm) = &one.last_norm {
            norm_channels(norm, true, shelf, &mut rows)?;
        }
        width = one.n_out;
    }
    if let Some(end) = &stem.end {
        (rows, width) = end_rows(end, stem.activation, (rows, width), shelf)?;
    }
    Ok((rows, width))
}

/// What the convolutions over rows read: frames, or the rows of convolutions over them as a plane. // [frame, channel]
fn first_rows<O: Ops>(
    stem: &SoundStem,
    frames: &[f32],
    n_mels: usize,
    shelf: WeightReader<'_, O>,
) -> Result<(Vec<f32>, usize)> {
    if !stem.planes.is_empty() {
        let mut plane = Plane::of_rows(frames.to_vec(), n_mels);
        if stem.has_bands_first {
            plane = plane.turned();
        }
        for one in &stem.planes {
            plane = convolve(one, stem.activation, &plane, shelf)?;
        }
        return match &stem.places {
            None if stem.has_bands_first => Ok(plane.turned().into_rows()),
            None => Ok(plane.into_rows()),
            Some(places) => rows_of_places(places, plane.values, shelf),
        };
    }
    let Some(map) = &stem.first else {
        return Ok((frames.to_vec(), n_mels));
    };
    let (ops, pace) = (shelf.ops, shelf.pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.put(frames, n_mels, &mut from)?;
    ops.linear(&from, &shelf.linear(map)?, &mut to, pace)?;
    ops.activate(stem.activation, &mut to)?;
    Ok((ops.get(&to)?.values.into_owned(), map.n_out()))
}

/// Learned rows, then those of places, all with their positions. // [place, width] → [position, width]
fn rows_of_places<O: Ops>(
    places: &StemPlaces,
    values: Vec<f32>,
    shelf: WeightReader<'_, O>,
) -> Result<(Vec<f32>, usize)> {
    let width = places.width;
    let mut rows = Vec::with_capacity(places.n_rows * width);
    for name in &places.firsts {
        let first = shelf.tensors.expect(name, &[1, 1, width])?.widen()?;
        rows.extend_from_slice(&first);
    }
    rows.extend(values);
    let shape = [1, places.n_rows, width];
    let positions = shelf.tensors.expect(&places.positions, &shape)?.widen()?;
    let pairs = rows.iter_mut().zip(&*positions);
    pairs.for_each(|(to, position)| *to += position);
    Ok((rows, width))
}

/// Normalises each channel over all rows, or all channels together. // rows: [position, channel]
fn norm_channels<O: Ops>(
    norm: &NormSource,
    is_together: bool,
    shelf: WeightReader<'_, O>,
    rows: &mut [f32],
) -> Result<()> {
    let n = norm.width.max(1);
    let vector = |name: Option<&String>, default: f32| match name {
        Some(name) => Ok::<_, Error>(shelf.vector(name, n)?.into_owned()),
        None => Ok(vec![default; n]),
    };
    let (gain, bias) = (
        vector(norm.gain.first(), 1.0)?,
        vector(norm.bias.as_ref(), 0.0)?,
    );
    let (n_sets, apart) = if is_together { (1, 1) } else { (n, n) };
    let n_values = (rows.len() / n_sets).max(1) as f64;
    for set in 0..n_sets {
        let values = || rows[set..].iter().step_by(apart).map(|v| f64::from(*v));
        let mean = values().sum::<f64>() / n_values;
        let squares = values().map(|value| (value - mean).powi(2));
        let scale = 1.0 / (squares.sum::<f64>() / n_values + f64::from(norm.eps)).sqrt();
        for value in rows[set..].iter_mut().step_by(apart) {
            *value = ((f64::from(*value) - mean) * scale) as f32;
        }
    }
    for row in rows.chunks_mut(n) {
        let pairs = row.iter_mut().zip(gain.iter().zip(&bias));
        pairs.for_each(|(value, (gain, bias))| *value = *value * gain + bias);
    }
    Ok(())
}

/// The rows of the residual from those of the last convolution. // [position, width]
fn end_rows<O: Ops>(
    end: &StemEnd,
    activation: Activation,
    (rows, width): (Vec<f32>, usize),
    shelf: WeightReader<'_, O>,
) -> Result<(Vec<f32>, usize)> {
    let (ops, pace) = (shelf.ops, shelf.pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&rows, width, &mut from)?;
    if let Some(norm) = &end.norm {
        ops.norm(&from, &shelf.norm(norm)?, &mut to)?;
        std::mem::swap(&mut from, &mut to);
    }
    let mut width = width;
    if let Some(map) = &end.projection {
        ops.linear(&from, &shelf.linear(map)?, &mut to, pace)?;
        std::mem::swap(&mut from, &mut to);
        width = map.n_out();
    }
    let rows = ops.get(&from)?.values.into_owned(); // [row, width]
    let mut added: Option<Vec<f32>> = None;
    for around in &end.positions {
        let sums = around_rows(around, added.as_ref().unwrap_or(&rows), end.n_pooled, shelf)?;
        ops.put(&sums, width, &mut from)?;
        if let Some(norm) = &around.norm {
            ops.norm(&from, &shelf.norm(norm)?, &mut to)?;
            std::mem::swap(&mut from, &mut to);
        }
        ops.activate(activation, &mut from)?;
        added = Some(ops.get(&from)?.values.into_owned());
    }
    let mut rows = pooled(rows, width, end.n_pooled); // [position, width]
    if let Some(sines) = end.sines {
        rows.iter_mut().for_each(|value| *value *= sines.scale);
        let n = rows.len() / width.max(1);
        let positions: Vec<usize> = (sines.first..).take(n).collect();
        add_sinusoids(&positions, sines.order, width, &mut rows);
    }
    let pairs = rows.iter_mut().zip(added.iter().flatten());
    pairs.for_each(|(to, v)| *to += v);
    Ok((rows, width))
}

/// The mean of each `n` rows; rows that are fewer are left out. // [row, width]
fn pooled(rows: Vec<f32>, width: usize, n: usize) -> Vec<f32> {
    if n <= 1 {
        return rows;
    }
    let of = |rows: &[f32]| -> Vec<f32> {
        let sum = |column: usize| rows[column..].iter().step_by(width.max(1)).sum::<f32>();
        (0..width).map(|column| sum(column) / n as f32).collect()
    };
    rows.chunks_exact((width * n).max(1)).flat_map(of).collect()
}

/// A kernel whose slices have the directions of one and the lengths of another tensor. // [width, channel, row], [row]
fn with_lengths(directions: &[f32], gains: &[f32]) -> Vec<f32> {
    let length = |nth: usize| {
        let slice = directions[nth..].iter().step_by(gains.len().max(1));
        slice.map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
    };
    let scales = gains.iter().enumerate();
    let scales: Vec<f32> = scales
        .map(|(nth, gain)| (f64::from(*gain) / length(nth)) as f32)
        .collect();
    let kernel = directions.iter().zip(scales.iter().cycle());
    kernel.map(|(v, scale)| v * scale).collect()
}

/// A convolution in groups over the rows around every `stride`th row. // [row, width] → [position, width]
fn around_rows<O: Ops>(
    spec: &AroundRows,
    rows: &[f32],
    stride: usize,
    shelf: WeightReader<'_, O>,
) -> Result<Vec<f32>> {
    let (width, wide, n_groups) = (spec.width.max(1), spec.n_wide, spec.n_groups.max(1));
    let of_group = width / n_groups;
    let tensor = |name: &str, shape: &[usize]| shelf.tensors.expect(name, shape)?.widen();
    let bias = tensor(&spec.bias, &[width])?;
    let whole = [width, of_group, wide];
    let kernel = match &spec.kernel {
        AroundKernel::Whole(name) => tensor(name, &whole)?.into_owned(),
        AroundKernel::ByLength { gains, directions } => {
            let gains = tensor(gains, &[1, 1, wide])?;
            let directions = tensor(directions, &whole)?;
            with_lengths(&directions, &gains)
        }
    }; // [width, channel, row]
    let n = rows.len() / width / stride.max(1);
    let mut sums = vec![0.0; n * width];
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    for group in 0..n_groups {
        let one = StemConvolution {
            weight: String::new(),
            bias: None,
            n_in: of_group,
            n_out: of_group,
            is_gated: false,
            n_wide: wide,
            stride,
            padding: [wide / 2, wide.saturating_sub(1) / 2],
            norm: None,
            activation: None,
            last_norm: None,
        };
        let first = group * of_group;
        let channels = columns(rows, width, first, of_group);
        shelf
            .ops
            .put(&around_of(&one).of(&channels), of_group * wide, &mut from)?;
        let size = of_group * of_group * wide;
        let weights = shelf.ops.linear_weights(HostLinear {
            n_out: of_group,
            n_in: of_group * wide,
            weight: HostWeight::F32(kernel[group * size..(group + 1) * size].to_vec().into()),
            is_input_major: false,
            bias: Some(bias[first..first + of_group].to_vec().into()),
            grams: Default::default(),
        })?;
        shelf.ops.linear(&from, &weights, &mut to, shelf.pace)?;
        let host = shelf.ops.get(&to)?;
        for (position, values) in host.values.chunks(of_group.max(1)).enumerate().take(n) {
            sums[position * width + first..][..of_group].copy_from_slice(values);
        }
    }
    Ok(sums)
}

fn linear_of<'a, O: Ops>(
    one: &StemConvolution,
    shelf: WeightReader<'a, O>,
) -> Result<O::Linear<'a>> {
    let shape = [one.n_mapped(), one.n_in, one.n_wide];
    let weight = shelf.tensors.expect(&one.weight, &shape)?.widen()?;
    let bias = match &one.bias {
        Some(name) => Some(shelf.vector(name, one.n_mapped())?),
        None => None,
    };
    shelf.ops.linear_weights(HostLinear {
        n_out: one.n_mapped(),
        n_in: one.n_in * one.n_wide,
        weight: HostWeight::F32(weight),
        is_input_major: false,
        bias,
        grams: Default::default(),
    })
}

/// The input window of each output of a convolution.
fn around_of(one: &StemConvolution) -> Around {
    Around {
        n_in: one.n_in,
        n_wide: one.n_wide,
        stride: one.stride,
        padding: one.padding,
    }
}
