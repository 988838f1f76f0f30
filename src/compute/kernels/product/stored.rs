//! Numbers as files store them, widened where they are multiplied.

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

/// The bits of a bf16 number: the upper half of an f32.
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
