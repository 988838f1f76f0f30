//! Rounds f32 values to narrower formats, and leaves them as f32.

use std::fmt;

/// A number format with fewer bits than f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberFormat {
    Bf16,
    F16,
    /// 8 bits: 4 of exponent, 3 of mantissa, largest value 448, no infinities (OCP 8-bit Floating Point Specification, 2023).
    E4m3,
    /// 8 bits: 5 of exponent, 2 of mantissa, largest value 57344 (OCP 8-bit Floating Point Specification, 2023).
    E5m2,
}

impl NumberFormat {
    /// The largest finite value.
    pub fn largest(self) -> f32 {
        match self {
            Self::Bf16 => half::bf16::MAX.to_f32(),
            Self::F16 => half::f16::MAX.to_f32(),
            Self::E4m3 => 448.0,
            Self::E5m2 => 57344.0,
        }
    }

    /// The nearest value of the format; of two equally near ones, that with an even mantissa.
    ///
    /// bf16 and f16 overflow to an infinity. The 8-bit formats saturate at ±[`Self::largest`], infinities included, as
    /// conversions of inference engines do. NaN stays NaN.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::Bf16 => half::bf16::from_f32(value).to_f32(),
            Self::F16 => half::f16::from_f32(value).to_f32(),
            Self::E4m3 => round_narrow(value, 3, -6, self.largest()),
            Self::E5m2 => round_narrow(value, 2, -14, self.largest()),
        }
    }

    /// Rounds all values in place.
    pub fn round_all(self, values: &mut [f32]) {
        values.iter_mut().for_each(|v| *v = self.round(*v));
    }
}

/// Rounds to a float with `n_mantissa` bits of mantissa whose smallest normal exponent is `least`.
fn round_narrow(value: f32, n_mantissa: i32, least: i32, largest: f32) -> f32 {
    if value.is_nan() {
        return value;
    }
    let value = value.clamp(-largest, largest);
    let exponent = ((value.to_bits() >> 23) & 0xff) as i32 - 127;
    let step = exponent.max(least) - n_mantissa;
    // A power of two: both the division and the product are exact.
    let step = f32::from_bits(((step + 127) as u32) << 23);
    (value / step).round_ties_even() * step
}

impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "fp8_e4m3",
            Self::E5m2 => "fp8_e5m2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finite value of an 8-bit format that is not negative, from its bits.
    fn all(n_mantissa: u32, bias: i32, largest: f32) -> Vec<f32> {
        (0..=127u32)
            .map(|bits| {
                let mantissa = (bits & ((1 << n_mantissa) - 1)) as f32 / (1 << n_mantissa) as f32;
                match (bits >> n_mantissa) as i32 {
                    0 => mantissa * 2f32.powi(1 - bias),
                    exponent => (1.0 + mantissa) * 2f32.powi(exponent - bias),
                }
            })
            .filter(|value| *value <= largest)
            .collect()
    }

    #[test]
    fn every_value_between_two_of_a_format_goes_to_the_nearer_one() {
        for (format, values) in [
            (NumberFormat::E4m3, all(3, 7, 448.0)),
            (NumberFormat::E5m2, all(2, 15, 57344.0)),
        ] {
            assert!(values.len() > 120, "{format}");
            for (nth, pair) in values.windows(2).enumerate() {
                let (below, above) = (pair[0], pair[1]);
                let middle = 0.5 * (below + above);
                let even = if nth % 2 == 0 { below } else { above };
                for sign in [1.0, -1.0] {
                    let round = |value: f32| format.round(sign * value);
                    assert_eq!(round(below), sign * below);
                    assert_eq!(round(middle), sign * even, "{format}: {middle}");
                    assert_eq!(round(middle.next_down()), sign * below, "{format}");
                    assert_eq!(round(middle.next_up()), sign * above, "{format}");
                }
            }
        }
    }

    #[test]
    fn formats_saturate_or_overflow_and_keep_nan() {
        for format in [NumberFormat::E4m3, NumberFormat::E5m2] {
            for value in [f32::INFINITY, f32::MAX, 2.0 * format.largest()] {
                assert_eq!(format.round(value), format.largest());
                assert_eq!(format.round(-value), -format.largest());
            }
        }
        assert_eq!(NumberFormat::F16.round(1e6), f32::INFINITY);
        assert_eq!(NumberFormat::Bf16.round(1.0 + 1.0 / 256.0), 1.0);
        for format in [
            NumberFormat::Bf16,
            NumberFormat::F16,
            NumberFormat::E4m3,
            NumberFormat::E5m2,
        ] {
            assert!(format.round(f32::NAN).is_nan());
            assert_eq!(format.round(-0.0).to_bits(), (-0.0f32).to_bits());
        }
    }
}
