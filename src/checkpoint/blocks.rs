//! Block-quantised weights: sizes of blocks in values and bytes, and their decoding to f32.

use std::borrow::Cow;

use candle_core::CpuStorage;
use candle_core::quantized::GgmlDType;
use rayon::prelude::*;

use super::iq_blocks::OwnBlock;

/// Number of blocks decoded in one call: few enough to stay in a cache, many enough to amortise the call.
const AT_ONCE: usize = 512;

/// One type of block: consecutive values of a row, stored together with their scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockType {
    /// Name in lower case, as files and people use it.
    pub name: &'static str,
    pub n_values: usize,
    pub n_bytes: usize,
    decoder: Option<Decoder>,
}

/// Decoder of a type of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decoder {
    Candle(GgmlDType),
    Own(OwnBlock),
}

impl BlockType {
    /// Describes a type of block that candle decodes.
    pub(super) const fn known(
        name: &'static str,
        n_values: usize,
        n_bytes: usize,
        decoder: GgmlDType,
    ) -> Self {
        Self {
            name,
            n_values,
            n_bytes,
            decoder: Some(Decoder::Candle(decoder)),
        }
    }

    /// Describes a type of block that is decoded in this crate.
    pub(super) const fn own(
        name: &'static str,
        n_values: usize,
        n_bytes: usize,
        decoder: OwnBlock,
    ) -> Self {
        Self {
            name,
            n_values,
            n_bytes,
            decoder: Some(Decoder::Own(decoder)),
        }
    }

    /// Describes a type of block of known size that cannot be decoded.
    pub(super) const fn opaque(name: &'static str, n_values: usize, n_bytes: usize) -> Self {
        Self {
            name,
            n_values,
            n_bytes,
            decoder: None,
        }
    }

    /// Whether the blocks can be decoded to f32.
    pub fn is_known(self) -> bool {
        self.decoder.is_some()
    }

    /// Decodes whole blocks; `None` if this type cannot be decoded.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<Vec<f32>> {
        let mut values = vec![0.0f32; bytes.len() / self.n_bytes * self.n_values];
        let decoder = match self.decoder? {
            Decoder::Candle(decoder) => decoder,
            Decoder::Own(own) => {
                values
                    .par_chunks_mut(self.n_values)
                    .zip(bytes.par_chunks_exact(self.n_bytes))
                    .for_each(|(values, block)| own.decode(block, values));
                return Some(values);
            }
        };
        values
            .par_chunks_mut(AT_ONCE * self.n_values)
            .zip(bytes.par_chunks(AT_ONCE * self.n_bytes))
            .try_for_each(|(values, blocks)| {
                // The decoder needs blocks aligned for 16-bit numbers.
                let mut moved: Vec<u16> = Vec::new();
                let blocks = if blocks.as_ptr().addr().is_multiple_of(2) {
                    blocks
                } else {
                    moved.resize(blocks.len().div_ceil(2), 0);
                    let room = &mut bytemuck::cast_slice_mut(&mut moved)[..blocks.len()];
                    room.copy_from_slice(blocks);
                    room
                };
                let decoded = decoder
                    .from_data(Cow::Borrowed(blocks))
                    .dequantize(values.len());
                match decoded {
                    Ok(CpuStorage::F32(decoded)) if decoded.len() == values.len() => {
                        values.copy_from_slice(&decoded);
                        Some(())
                    }
                    _ => None,
                }
            })?;
        Some(values)
    }
}
