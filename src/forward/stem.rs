//! Convolutional stem of a speech model: makes the rows of a stack before positions are added.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{HostLinear, HostWeight, Ops};
use attnscope_prompt::HEARS;
use attnscope_spec::{SoundStem, StemConvolution};

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
    let mut rows = sound.values.clone(); // [frame, channel]
    let (mut around, mut to) = (O::Buffer::default(), O::Buffer::default());
    for one in &stem.convolutions {
        let width = one.n_in * one.n_wide;
        ops.put(&around_of(one, &rows), width, &mut around)?;
        ops.linear(&around, &linear_of(one, shelf)?, &mut to, pace)?; // [position, channel]
        ops.activate(stem.activation, &mut to)?;
        rows = ops.get(&to)?.values.into_owned();
    }
    // Tokens are indices into the audio's rows, so a part or a reordering of a sequence picks its own rows.
    let width = stem.convolutions.last().map_or(1, |last| last.n_out);
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

fn linear_of<'a, O: Ops>(
    one: &StemConvolution,
    shelf: WeightReader<'a, O>,
) -> Result<O::Linear<'a>> {
    let shape = [one.n_out, one.n_in, one.n_wide];
    let weight = shelf.tensors.expect(&one.weight, &shape)?.widen()?;
    let bias = match &one.bias {
        Some(name) => Some(shelf.vector(name, one.n_out)?),
        None => None,
    };
    shelf.ops.linear_weights(HostLinear {
        n_out: one.n_out,
        n_in: one.n_in * one.n_wide,
        weight: HostWeight::F32(weight),
        is_input_major: false,
        bias,
        grams: Default::default(),
    })
}

/// Gathers the input window of each output, channel by channel. // [position, channel · row]
fn around_of(one: &StemConvolution, rows: &[f32]) -> Vec<f32> {
    let (n, wide) = (rows.len() / one.n_in.max(1), one.n_wide);
    let n_out = n.div_ceil(one.stride.max(1));
    let mut around = vec![0.0; n_out * one.n_in * wide];
    let each = around.chunks_mut((one.n_in * wide).max(1)).enumerate();
    for (position_idx, to) in each {
        for nth in 0..wide {
            let row_idx = (position_idx * one.stride + nth).checked_sub(wide / 2);
            let Some(row_idx) = row_idx.filter(|row_idx| *row_idx < n) else {
                continue;
            };
            let from = &rows[row_idx * one.n_in..][..one.n_in];
            for (channel_idx, value) in from.iter().enumerate() {
                to[channel_idx * wide + nth] = *value;
            }
        }
    }
    around
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_windows_are_channel_major_and_padded_with_zeros() {
        let one = StemConvolution {
            weight: String::new(),
            bias: None,
            n_in: 2,
            n_out: 1,
            n_wide: 3,
            stride: 2,
        };
        let rows: Vec<f32> = (1..=8).map(|v| v as f32).collect(); // four rows of two
        let around = around_of(&one, &rows);
        assert_eq!(around[..6], [0.0, 1.0, 3.0, 0.0, 2.0, 4.0]);
        assert_eq!(around[6..], [3.0, 5.0, 7.0, 4.0, 6.0, 8.0]);
    }
}
