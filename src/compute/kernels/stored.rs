//! Numbers as stored in files, little-endian, converted to f32.

use bytemuck::Pod;

/// A stored number.
pub trait Stored: Pod + Send + Sync {
    fn widen(self) -> f32;

    /// Numbers that need no widening.
    fn as_f32(numbers: &[Self]) -> Option<&[f32]>;
}

impl Stored for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn as_f32(numbers: &[f32]) -> Option<&[f32]> {
        Some(numbers)
    }
}

/// The bits of a bf16 number: the upper half of an f32, so a shift is enough, which compilers vectorise.
impl Stored for u16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }

    #[inline(always)]
    fn as_f32(_: &[u16]) -> Option<&[f32]> {
        None
    }
}

/// Copies f32.
///
/// # Panics
/// When the number of elements differs; the same applies to all functions of this file.
pub fn f32_into(bytes: &[u8], to: &mut [f32]) {
    each(bytes.as_chunks::<4>().0, to, |b| f32::from_le_bytes(*b));
}

/// Converts f64 to the nearest f32.
pub fn f64_into(bytes: &[u8], to: &mut [f32]) {
    each(bytes.as_chunks::<8>().0, to, |b| {
        f64::from_le_bytes(*b) as f32
    });
}

/// Converts f16, which need not be aligned.
pub fn f16_into(bytes: &[u8], to: &mut [f32]) {
    each(bytes.as_chunks::<2>().0, to, |b| {
        half::f16::from_le_bytes(*b).to_f32()
    });
}

/// Converts bf16.
pub fn bf16_into(bytes: &[u8], to: &mut [f32]) {
    each(bytes.as_chunks::<2>().0, to, |b| {
        u16::from_le_bytes(*b).widen()
    });
}

fn each<T>(from: &[T], to: &mut [f32], widen: impl Fn(&T) -> f32) {
    assert_eq!(from.len(), to.len(), "as many elements as values");
    for (to, from) in to.iter_mut().zip(from) {
        *to = widen(from);
    }
}

/// Converts the bits of bf16 numbers to f32.
pub fn widen_bf16(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|bits| bits.widen()).collect()
}
