//! Tables of the values of four-bit and eight-bit floats, and of eight-bit power-of-two scales.
//!
//! The formats are those of the OCP Microscaling (MX) and 8-bit floating point specifications: sign, biased exponent, mantissa;
//! exponent 0 is subnormal.

/// Four bits: 1 sign, 2 exponent (bias 1), 1 mantissa; all codes are finite.
const E2M1: [f32; 16] = {
    let mut values = [0.0; 16];
    let mut code = 0;
    while code < 16 {
        values[code] = finite(code as u8, 2, 1, 1);
        code += 1;
    }
    values
};

/// Eight bits: 1 sign, 4 exponent (bias 7), 3 mantissa; all ones is NaN, and there is no infinity.
pub(super) const E4M3: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = match code & 0x7f {
            0x7f => f32::NAN,
            _ => finite(code as u8, 4, 3, 7),
        };
        code += 1;
    }
    values
};

/// Eight bits: 1 sign, 5 exponent (bias 15), 2 mantissa; infinities and NaN as in IEEE 754.
pub(super) const E5M2: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = match code {
            0x7c => f32::INFINITY,
            0xfc => f32::NEG_INFINITY,
            0x7d..=0x7f | 0xfd..=0xff => f32::NAN,
            _ => finite(code as u8, 5, 2, 15),
        };
        code += 1;
    }
    values
};

/// Multiplies a four-bit float by its scale 2^(scale − 127), given as half of that scale.
///
/// In the specification, a scale of 255 means NaN; files are written and read with 2^128, and so they are here: a product
/// beyond f32 becomes infinite.
pub(super) fn scaled_e2m1(code: u8, half_scale: f32) -> f32 {
    E2M1[usize::from(code & 0xf)] * 2.0 * half_scale
}

/// Returns half of a scale, which f32 can represent for all codes.
pub(super) fn half_scale(scale: u8) -> f32 {
    f32::from_bits(match scale {
        0 => 1 << 21, // subnormal
        1 => 1 << 22,
        _ => u32::from(scale - 1) << 23,
    })
}

/// Decodes a code whose exponent is not reserved.
const fn finite(code: u8, n_exponent: u32, n_mantissa: u32, bias: i32) -> f32 {
    let steps = 1u32 << n_mantissa;
    let mantissa = code as u32 & (steps - 1);
    let exponent = (code as u32 >> n_mantissa) & ((1 << n_exponent) - 1);
    let (significand, power) = match exponent {
        0 => (mantissa, 1 - bias),
        _ => (mantissa + steps, exponent as i32 - bias),
    };
    // Exact: a few bits times a power of two well inside the range of f32.
    let unit = f32::from_bits(((power - n_mantissa as i32 + 127) as u32) << 23);
    let magnitude = significand as f32 * unit;
    match code >> (n_exponent + n_mantissa) {
        0 => magnitude,
        _ => -magnitude,
    }
}
