//! What makes the rows of a stack that hears, before positions are added.

use super::embed::Sequence;
use super::weights::Shelf;
use crate::checkpoint::Tensors;
use crate::error::{Error, Result};
use crate::ops::{Activation, HostLinear, HostWeight, Ops};
use crate::prompt::{HEARS, SoundRule};

/// Convolutions over the frames of a spectrogram, one after another, each followed by an activation.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundStem {
    pub rule: SoundRule,
    pub convolutions: Vec<StemConvolution>,
    pub activation: Activation,
}

/// A convolution over rows with all channels, and as many rows of zeros around them as its middle weight needs.
#[derive(Debug, Clone, PartialEq)]
pub struct StemConvolution {
    /// [n_out, n_in, n_wide]
    pub weight: String,
    pub bias: Option<String>,
    pub n_in: usize,
    pub n_out: usize,
    /// Rows that each output is made of: an odd number.
    pub n_wide: usize,
    /// Rows from one output to the next.
    pub stride: usize,
}

impl SoundStem {
    /// The tensors it reads, with the shape that each must have.
    pub fn tensors(&self) -> Vec<(&String, Vec<usize>)> {
        let each = self.convolutions.iter().flat_map(|one| {
            let weight = (&one.weight, vec![one.n_out, one.n_in, one.n_wide]);
            let bias = one.bias.as_ref().map(|bias| (bias, vec![one.n_out]));
            [Some(weight), bias].into_iter().flatten()
        });
        each.collect()
    }

    /// What it computes, for comparisons.
    pub fn words(&self) -> String {
        let each = self.convolutions.iter().map(|one| {
            let (n_in, n_out, wide, stride) = (one.n_in, one.n_out, one.n_wide, one.stride);
            format!("{n_in}→{n_out} over {wide} every {stride}")
        });
        let each: Vec<String> = each.collect();
        format!("{}, {}", each.join(", "), self.activation)
    }

    /// The rows that it makes of a sequence's sound. // [position, d_embed]
    ///
    /// # Errors
    /// When the sequence has no sound, a tensor is not as the spec says, or the device fails.
    pub(super) fn rows<O: Ops>(
        &self,
        ops: &O,
        tensors: &Tensors,
        sequence: &Sequence,
    ) -> Result<Vec<f32>> {
        let Some(sound) = sequence.sound.as_deref() else {
            return Err(Error::Prompt(HEARS.to_owned()));
        };
        let pace = &|| false;
        let shelf = Shelf::new(ops, tensors, pace);
        let mut rows = sound.values.clone(); // [frame, channel]
        let (mut around, mut to) = (O::Buffer::default(), O::Buffer::default());
        for one in &self.convolutions {
            let width = one.n_in * one.n_wide;
            ops.put(&one.around(&rows), width, &mut around)?;
            ops.linear(&around, &one.linear(shelf)?, &mut to, pace)?; // [position, channel]
            ops.activate(self.activation, &mut to)?;
            rows = ops.get(&to)?.values.into_owned();
        }
        // Tokens are places: a part of a sequence, or another order of it, has rows of its own.
        let width = self.convolutions.last().map_or(1, |last| last.n_out);
        let mut chosen = Vec::with_capacity(sequence.len() * width);
        for place in &sequence.tokens {
            let at = *place as usize * width;
            let row = rows.get(at..at + width).ok_or_else(|| {
                let n = rows.len() / width.max(1);
                Error::Prompt(format!("place {place} does not exist in a sound of {n}"))
            })?;
            chosen.extend_from_slice(row);
        }
        Ok(chosen)
    }
}

impl StemConvolution {
    fn linear<'a, O: Ops>(&self, shelf: Shelf<'a, O>) -> Result<O::Linear<'a>> {
        let shape = [self.n_out, self.n_in, self.n_wide];
        let weight = shelf.tensors.expect(&self.weight, &shape)?.widen()?;
        let bias = match &self.bias {
            Some(name) => Some(shelf.vector(name, self.n_out)?),
            None => None,
        };
        shelf.ops.linear_weights(HostLinear {
            n_out: self.n_out,
            n_in: self.n_in * self.n_wide,
            weight: HostWeight::F32(weight),
            is_input_major: false,
            bias,
            grams: Default::default(),
        })
    }

    /// The rows that each output is made of, side by side: every channel with its rows together. // [position, channel · row]
    fn around(&self, rows: &[f32]) -> Vec<f32> {
        let (n, wide) = (rows.len() / self.n_in.max(1), self.n_wide);
        let n_out = n.div_ceil(self.stride.max(1));
        let mut around = vec![0.0; n_out * self.n_in * wide];
        let each = around.chunks_mut((self.n_in * wide).max(1)).enumerate();
        for (position_idx, to) in each {
            for nth in 0..wide {
                let row_idx = (position_idx * self.stride + nth).checked_sub(wide / 2);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_around_a_position_lie_by_channel_and_end_in_zeros() {
        let one = StemConvolution {
            weight: String::new(),
            bias: None,
            n_in: 2,
            n_out: 1,
            n_wide: 3,
            stride: 2,
        };
        let rows: Vec<f32> = (1..=8).map(|v| v as f32).collect(); // four rows of two
        let around = one.around(&rows);
        assert_eq!(around[..6], [0.0, 1.0, 3.0, 0.0, 2.0, 4.0]);
        assert_eq!(around[6..], [3.0, 5.0, 7.0, 4.0, 6.0, 8.0]);
    }
}
