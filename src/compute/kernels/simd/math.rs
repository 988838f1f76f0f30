//! Vectorised exp, and functions based on it.

use super::lanes::Lanes;

/// Below this, exp returns 0: results below e⁻⁸⁷ would lose digits.
const LEAST: f32 = -87.0;
/// Beyond this, exp returns infinity.
const MOST: f32 = 88.5;
/// 1.5·2²³: adding it leaves the nearest integer in the low bits.
const SHIFT: f32 = 12_582_912.0;
/// ln 2 in two parts, the first short enough that its multiples are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// exp(x) for x ≤ 0, within 2 ulp; 0 below −87.
#[inline(always)]
pub(super) fn exp_of_negative<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    let (power, shifted) = exp_parts(l, x);
    let power = l.times_power_of_two(l.add(power, l.splat(1.0)), shifted);
    l.select(l.less(x, l.splat(LEAST)), l.splat(0.0), power)
}

/// eʳ − 1 and the shifted n, where x = n·ln 2 + r and |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_parts<L: Lanes>(l: L, x: L::Vector) -> (L::Vector, L::Vector) {
    let shifted = l.mul_add(x, l.splat(std::f32::consts::LOG2_E), l.splat(SHIFT));
    let n = l.sub(shifted, l.splat(SHIFT));
    let r = l.mul_add(n, l.splat(-LN_2_HIGH), x);
    let r = l.mul_add(n, l.splat(-LN_2_LOW), r);
    // Taylor coefficients of (eʳ − 1 − r) / r²: at |r| ≤ 0.35 the first omitted term is below 2⁻²⁵.
    const SERIES: [f32; 6] = [
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        1.0 / 2.0,
    ];
    let mut series = l.splat(SERIES[0]);
    for coefficient in &SERIES[1..] {
        series = l.mul_add(series, r, l.splat(*coefficient));
    }
    (l.mul_add(l.mul(r, r), series, r), shifted)
}

/// exp(x); infinite beyond 88.5 and 0 below −87.
#[inline(always)]
pub(super) fn exp<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    // 2^n does not fit for the largest n, so exp(x / 2) is squared.
    let half = l.mul(x, l.splat(0.5));
    let (power, shifted) = exp_parts(l, half);
    let root = l.times_power_of_two(l.add(power, l.splat(1.0)), shifted);
    let power = l.mul(root, root);
    let power = l.select(l.less(x, l.splat(LEAST)), l.splat(0.0), power);
    let power = l.select(l.less(l.splat(MOST), x), l.splat(f32::INFINITY), power);
    keep_nan(l, x, power)
}

/// tanh(x), accurate near 0 too.
#[inline(always)]
pub(super) fn tanh<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    // (e²ˣ − 1) / (e²ˣ + 1) of |x|, where e²ˣ − 1 = 2^n (eʳ − 1) + (2^n − 1) avoids cancellation. At 10 the result is 1.
    let twice = l.min(l.mul(l.abs(x), l.splat(2.0)), l.splat(20.0));
    let (power, shifted) = exp_parts(l, twice);
    let scale = l.times_power_of_two(l.splat(1.0), shifted);
    let less_one = l.mul_add(scale, power, l.sub(scale, l.splat(1.0)));
    let size = l.div(less_one, l.add(less_one, l.splat(2.0)));
    let signed = l.select(l.less(x, l.splat(0.0)), l.sub(l.splat(0.0), size), size);
    keep_nan(l, x, signed)
}

/// NaN where `x` is NaN: minima and maxima may have removed it.
#[inline(always)]
fn keep_nan<L: Lanes>(l: L, x: L::Vector, value: L::Vector) -> L::Vector {
    l.select(l.less_or_equal(x, x), value, x)
}

/// erf(x), within 3e-7: Abramowitz and Stegun 1964, formula 7.1.26.
#[inline(always)]
pub(super) fn erf<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    const P: f32 = 0.327_591_1;
    const COEFFICIENTS: [f32; 5] = [
        1.061_405_4,
        -1.453_152,
        1.421_413_7,
        -0.284_496_74,
        0.254_829_6,
    ];
    let size = l.abs(x);
    let t = l.div(l.splat(1.0), l.mul_add(size, l.splat(P), l.splat(1.0)));
    let mut series = l.splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        series = l.mul_add(series, t, l.splat(*coefficient));
    }
    let bell = exp_of_negative(l, l.sub(l.splat(0.0), l.mul(size, size)));
    let size = l.sub(l.splat(1.0), l.mul(l.mul(series, t), bell));
    let signed = l.select(l.less(x, l.splat(0.0)), l.sub(l.splat(0.0), size), size);
    keep_nan(l, x, signed)
}
