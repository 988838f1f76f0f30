//! Element types of stored tensors, and widening them to f32.

use std::borrow::Cow;
use std::fmt;

use attnscope_compute::kernels::stored;
use half::slice::HalfFloatSliceExt;

use super::blocks::BlockType;
use super::small_floats::{E4M3, E5M2};

/// Values that share a scale in MXFP4, and the bytes they take.
pub(super) const GROUP: usize = 32;
pub(super) const GROUP_BYTES: usize = GROUP / 2;

/// Encoding of the elements of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    /// Eight-bit float with four exponent bits, as used for weights; no infinities.
    F8E4m3,
    F8E5m2,
    /// Four-bit floats in groups of 32; their scales are stored separately.
    Mxfp4,
    /// Quantised numbers of a few bits, with the name of the method; their scales are stored separately.
    Packed(&'static str),
    /// Block-quantised values.
    Block(BlockType),
    /// Anything that is not a weight (stored masks, position ids): the file's name of the type, and bytes per element.
    Other(&'static str, usize),
}

impl Dtype {
    /// Bytes per element, or per block of elements.
    pub fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8E4m3 | Self::F8E5m2 | Self::Packed(_) => 1,
            Self::Mxfp4 => GROUP_BYTES,
            Self::Block(block) => block.n_bytes,
            Self::Other(_, size) => size,
        }
    }

    /// Number of elements that are stored together: 1, or those of a block.
    pub fn block_len(self) -> usize {
        match self {
            Self::Block(block) => block.n_values,
            Self::Mxfp4 => GROUP,
            _ => 1,
        }
    }

    /// Bytes of a number of elements, which must be whole blocks.
    pub fn n_bytes(self, n_elements: usize) -> usize {
        n_elements / self.block_len() * self.size()
    }

    /// Whether the elements can be widened to f32.
    pub fn is_float(self) -> bool {
        match self {
            Self::Block(block) => block.is_known(),
            Self::Other(..) => false,
            _ => true,
        }
    }

    /// Widens elements to f32; borrows them if they are already f32 and aligned.
    ///
    /// Returns `None` for types that are not floating point, for blocks that cannot be decoded, and for quantised numbers that
    /// need separate scales.
    pub fn widen(self, bytes: &[u8]) -> Option<Cow<'_, [f32]>> {
        Some(match self {
            Self::F32 => match bytemuck::try_cast_slice(bytes) {
                Ok(aligned) => Cow::Borrowed(aligned),
                Err(_) => widened(bytes, 4, stored::f32_into),
            },
            Self::F64 => widened(bytes, 8, stored::f64_into),
            Self::F16 => match bytemuck::try_cast_slice::<u8, half::f16>(bytes) {
                Ok(aligned) => {
                    let mut wide = vec![0.0; aligned.len()];
                    aligned.convert_to_f32_slice(&mut wide);
                    Cow::Owned(wide)
                }
                Err(_) => widened(bytes, 2, stored::f16_into),
            },
            Self::Bf16 => widened(bytes, 2, stored::bf16_into),
            Self::Block(block) => Cow::Owned(block.decode(bytes)?),
            Self::F8E4m3 => Cow::Owned(bytes.iter().map(|b| E4M3[usize::from(*b)]).collect()),
            Self::F8E5m2 => Cow::Owned(bytes.iter().map(|b| E5M2[usize::from(*b)]).collect()),
            Self::Mxfp4 | Self::Packed(_) | Self::Other(..) => return None,
        })
    }

    /// Widens elements into a buffer; `None` as for [`widen`](Self::widen).
    ///
    /// # Panics
    /// When the buffer does not have the right length.
    pub fn widen_into(self, bytes: &[u8], to: &mut [f32]) -> Option<()> {
        match self {
            Self::Bf16 => stored::bf16_into(bytes, to),
            Self::F64 => stored::f64_into(bytes, to),
            _ => to.copy_from_slice(&self.widen(bytes)?),
        }
        Some(())
    }
}

/// Widens elements of `size` bytes with a kernel into a new buffer.
fn widened(bytes: &[u8], size: usize, into: fn(&[u8], &mut [f32])) -> Cow<'_, [f32]> {
    let mut wide = vec![0.0; bytes.len() / size];
    into(bytes, &mut wide);
    Cow::Owned(wide)
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8E4m3 => "f8_e4m3",
            Self::F8E5m2 => "f8_e5m2",
            Self::Mxfp4 => "mxfp4",
            Self::Packed(name) => name,
            Self::Block(block) => block.name,
            Self::Other(name, _) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_float_type_are_widened_exactly() {
        let values = [0.0f32, -1.5, 0.375, f32::INFINITY];
        let f16: Vec<u8> = values
            .iter()
            .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
            .collect();
        let bf16: Vec<u8> = values
            .iter()
            .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
            .collect();
        let f32: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let f64: Vec<u8> = values
            .iter()
            .flat_map(|v| f64::from(*v).to_le_bytes())
            .collect();
        for (dtype, bytes) in [
            (Dtype::F16, f16),
            (Dtype::Bf16, bf16),
            (Dtype::F32, f32),
            (Dtype::F64, f64),
        ] {
            assert_eq!(
                dtype.widen(&bytes).expect("a float type").as_ref(),
                values,
                "{dtype}"
            );
        }
    }

    #[test]
    fn unaligned_bytes_are_widened_like_aligned_ones() {
        let stored: [(Dtype, &[u8]); 4] = [
            (Dtype::F32, &2.5f32.to_le_bytes()),
            (Dtype::F64, &2.5f64.to_le_bytes()),
            (Dtype::F16, &half::f16::from_f32(2.5).to_le_bytes()),
            (Dtype::Bf16, &half::bf16::from_f32(2.5).to_le_bytes()),
        ];
        for (dtype, stored) in stored {
            // One of the two offsets is not aligned.
            for before in [0, 1] {
                let mut bytes = vec![0u8; before];
                bytes.extend(stored);
                let bytes = &bytes[before..];
                let mut placed = [0.0];
                dtype.widen_into(bytes, &mut placed).expect("a float");
                assert_eq!(placed, [2.5], "{dtype}");
                assert_eq!(dtype.widen(bytes).expect("a float").as_ref(), [2.5]);
            }
        }
    }

    #[test]
    fn integers_are_never_widened() {
        assert!(Dtype::Other("i64", 8).widen(&[0; 8]).is_none());
    }
}
