//! Formats of a KV cache: what keys and values become when they are stored and read again.

use std::fmt;

use rayon::prelude::*;

use crate::kernels::NumberFormat;

/// Number of consecutive values of a vector that share one scale in [`KvFormat::Int8`] and [`KvFormat::Int4`].
const BLOCK: usize = 32;
/// Number of vectors that one task rounds.
const AT_ONCE: usize = 256;

/// How a KV cache stores keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    /// One number per value, with scale 1: vLLM's `kv_cache_dtype` without calibrated scales, and SGLang's `--kv-cache-dtype`.
    Number(NumberFormat),
    /// 8-bit integers from −127 to 127, in blocks of 32 with an f16 scale: `q8_0` of llama.cpp (`quantize_row_q8_0_ref`).
    Int8,
    /// 4-bit integers from −8 to 7, in blocks of 32 with an f16 scale: `q4_0` of llama.cpp (`quantize_row_q4_0_ref`).
    Int4,
}

impl KvFormat {
    /// Rounds vectors in place, each of `width` values. Blocks begin with a vector; its last block may be shorter.
    ///
    /// A block of integers that has a NaN or an infinity becomes NaN.
    /// // values: [vector, width]
    pub fn round(self, values: &mut [f32], width: usize) {
        let width = width.max(1);
        values.par_chunks_mut(AT_ONCE * width).for_each(|some| {
            if let Self::Number(format) = self {
                return format.round_all(some);
            }
            for vector in some.chunks_mut(width) {
                for block in vector.chunks_mut(BLOCK) {
                    self.round_block(block);
                }
            }
        });
    }

    fn round_block(self, block: &mut [f32]) {
        let mut furthest = 0.0f32;
        for value in &*block {
            if !value.is_finite() {
                return block.fill(f32::NAN);
            }
            // The first of several that are equally far from 0, since its sign is that of the scale.
            if value.abs() > furthest.abs() {
                furthest = *value;
            }
        }
        let scale = match self {
            Self::Int4 => furthest / -8.0,
            Self::Int8 | Self::Number(_) => furthest.abs() / 127.0,
        };
        // Values are divided by the scale itself, and multiplied with what is stored of it.
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let stored = NumberFormat::F16.round(scale);
        for value in block {
            let quotient = *value * inverse;
            let integer = match self {
                Self::Int4 => (quotient + 8.5).trunc().min(15.0) - 8.0,
                Self::Int8 | Self::Number(_) => quotient.round(),
            };
            *value = integer * stored;
        }
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(format) => format.fmt(f),
            Self::Int8 => f.write_str("int8"),
            Self::Int4 => f.write_str("int4"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_span_a_block_and_blocks_do_not_share_a_scale() {
        // A vector of 40 values is a block of 32 and one of 8.
        let values: Vec<f32> = (0..40)
            .map(|idx| if idx < 32 { idx as f32 } else { 1e-3 })
            .collect();
        for (format, step) in [(KvFormat::Int8, 31.0 / 127.0), (KvFormat::Int4, 31.0 / 8.0)] {
            let mut rounded = values.clone();
            format.round(&mut rounded, 40);
            for (was, is) in values.iter().zip(&rounded) {
                let step = if *was < 0.01 && *was > 0.0 {
                    1e-3 / 8.0
                } else {
                    step
                };
                assert!((was - is).abs() <= step, "{format}: {was} {is}");
            }
            assert!(rounded[39] > 0.0, "{format}: a block of its own");
            assert!(
                (rounded[31] - 31.0).abs() < 0.01,
                "{format}: {}",
                rounded[31]
            );
        }
    }

    #[test]
    fn zeros_stay_zeros_and_a_nan_spoils_its_block_alone() {
        for format in [KvFormat::Int8, KvFormat::Int4] {
            let mut zeros = [0.0f32; 32];
            format.round(&mut zeros, 32);
            assert!(zeros.iter().all(|v| *v == 0.0), "{format}");
            let mut values = [1.0f32; 64];
            values[40] = f32::NAN;
            format.round(&mut values, 64);
            assert!(values[..32].iter().all(|v| (v - 1.0).abs() < 1e-3));
            assert!(values[32..].iter().all(|v| v.is_nan()));
        }
    }
}
