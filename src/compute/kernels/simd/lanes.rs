//! Vectors of f32, and the operations from which kernels are written.

use bytemuck::Pod;

/// Vectors of f32 at one instruction level. Every function must be inlined into the kernel that uses it.
pub(in crate::kernels) trait Lanes: Copy + Send + Sync + 'static {
    /// Number of values in a vector.
    const N: usize;
    /// Number of vector registers.
    const REGISTERS: usize;
    type Vector: Copy + Pod;
    type Mask: Copy;

    fn splat(self, value: f32) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a·b + c, with a single rounding if the processor supports it.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn abs(self, a: Self::Vector) -> Self::Vector;
    fn less(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    fn less_or_equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    fn and(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// `yes` where the mask is set, `no` elsewhere.
    fn select(self, mask: Self::Mask, yes: Self::Vector, no: Self::Vector) -> Self::Vector;
    /// a·2^n, where `shifted` is n + 1.5·2²³ and the result neither overflows nor underflows.
    fn times_power_of_two(self, a: Self::Vector, shifted: Self::Vector) -> Self::Vector;
    fn sum(self, a: Self::Vector) -> f32;
    /// The whole vectors at the beginning of a slice.
    fn vectors(slice: &[f32]) -> &[Self::Vector];
    fn vectors_mut(slice: &mut [f32]) -> &mut [Self::Vector];

    /// 0, 1, 2, …
    #[inline(always)]
    fn indices(self) -> Self::Vector {
        const INDICES: [f32; 16] = [
            0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
        ];
        Self::vectors(&INDICES)[0]
    }

    /// The values of a vector, in order.
    #[inline(always)]
    fn values(a: &Self::Vector) -> &[f32] {
        bytemuck::cast_slice(std::slice::from_ref(a))
    }
}

/// Four values in an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

const WIDTH: usize = 4;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; WIDTH] {
    std::array::from_fn(f)
}

impl Lanes for Portable {
    const N: usize = WIDTH;
    const REGISTERS: usize = if cfg!(target_arch = "aarch64") {
        32
    } else {
        16
    };
    type Vector = [f32; WIDTH];
    type Mask = [bool; WIDTH];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Vector {
        [value; WIDTH]
    }

    #[inline(always)]
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        // Not `f32::mul_add` everywhere: without the instruction it is one function call per value.
        if cfg!(target_arch = "aarch64") {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            each(|i| a[i] * b[i] + c[i])
        }
    }

    #[inline(always)]
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn abs(self, a: Self::Vector) -> Self::Vector {
        each(|i| a[i].abs())
    }

    #[inline(always)]
    fn less(self, a: Self::Vector, b: Self::Vector) -> Self::Mask {
        std::array::from_fn(|i| a[i] < b[i])
    }

    #[inline(always)]
    fn less_or_equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask {
        std::array::from_fn(|i| a[i] <= b[i])
    }

    #[inline(always)]
    fn and(self, a: Self::Mask, b: Self::Mask) -> Self::Mask {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn select(self, mask: Self::Mask, yes: Self::Vector, no: Self::Vector) -> Self::Vector {
        each(|i| if mask[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn times_power_of_two(self, a: Self::Vector, shifted: Self::Vector) -> Self::Vector {
        each(|i| f32::from_bits(a[i].to_bits().wrapping_add(shifted[i].to_bits() << 23)))
    }

    #[inline(always)]
    fn sum(self, a: Self::Vector) -> f32 {
        (a[0] + a[2]) + (a[1] + a[3])
    }

    #[inline(always)]
    fn vectors(slice: &[f32]) -> &[Self::Vector] {
        slice.as_chunks().0
    }

    #[inline(always)]
    fn vectors_mut(slice: &mut [f32]) -> &mut [Self::Vector] {
        slice.as_chunks_mut().0
    }
}

/// The vectors of a level supported by pulp.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPulp<S>(pub S);

#[cfg(target_arch = "x86_64")]
impl<S: pulp::Simd> Lanes for OfPulp<S> {
    const N: usize = S::F32_LANES;
    const REGISTERS: usize = S::REGISTER_COUNT;
    type Vector = S::f32s;
    type Mask = S::m32s;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Vector {
        self.0.splat_f32s(value)
    }

    #[inline(always)]
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.add_f32s(a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.sub_f32s(a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.mul_f32s(a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.div_f32s(a, b)
    }

    #[inline(always)]
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        self.0.mul_add_e_f32s(a, b, c)
    }

    #[inline(always)]
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.min_f32s(a, b)
    }

    #[inline(always)]
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        self.0.max_f32s(a, b)
    }

    #[inline(always)]
    fn abs(self, a: Self::Vector) -> Self::Vector {
        self.0.abs_f32s(a)
    }

    #[inline(always)]
    fn less(self, a: Self::Vector, b: Self::Vector) -> Self::Mask {
        self.0.less_than_f32s(a, b)
    }

    #[inline(always)]
    fn less_or_equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask {
        self.0.less_than_or_equal_f32s(a, b)
    }

    #[inline(always)]
    fn and(self, a: Self::Mask, b: Self::Mask) -> Self::Mask {
        self.0.and_m32s(a, b)
    }

    #[inline(always)]
    fn select(self, mask: Self::Mask, yes: Self::Vector, no: Self::Vector) -> Self::Vector {
        self.0.select_f32s(mask, yes, no)
    }

    #[inline(always)]
    fn times_power_of_two(self, a: Self::Vector, shifted: Self::Vector) -> Self::Vector {
        let simd = self.0;
        let power = simd.transmute_u32s_f32s(shifted);
        let power = simd.wrapping_dyn_shl_u32s(power, simd.splat_u32s(23));
        simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(a), power))
    }

    #[inline(always)]
    fn sum(self, a: Self::Vector) -> f32 {
        self.0.reduce_sum_f32s(a)
    }

    #[inline(always)]
    fn vectors(slice: &[f32]) -> &[Self::Vector] {
        S::as_simd_f32s(slice).0
    }

    #[inline(always)]
    fn vectors_mut(slice: &mut [f32]) -> &mut [Self::Vector] {
        S::as_mut_simd_f32s(slice).0
    }
}
