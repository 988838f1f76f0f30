//! Detects whether one tensor is another one rounded to 16 bits.

/// Number of possible roundings: A to bf16, A to f16, and the same for B.
const DIRECTIONS: usize = 4;
/// Number of values checked at a time.
const AT_ONCE: usize = 64;

/// Roundings consistent with the pairs of values seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Roundings([bool; DIRECTIONS]);

impl Roundings {
    pub const ALL: Self = Self([true; DIRECTIONS]);

    pub fn are_possible(self) -> bool {
        self.0.contains(&true)
    }

    /// Returns the roundings consistent with both.
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|idx| self.0[idx] && other.0[idx]))
    }

    /// Returns the roundings still consistent after more pairs.
    pub fn after(self, a: &[f32], b: &[f32]) -> Self {
        Self(std::array::from_fn(|idx| {
            let (from, rounded) = if idx < 2 { (a, b) } else { (b, a) };
            self.0[idx]
                && match idx % 2 {
                    0 => all(from, rounded, to_bf16),
                    _ => all(from, rounded, |v| half::f16::from_f32(v).to_f32()),
                }
        }))
    }
}

/// Rounds a value to bf16, to nearest even; not for NaNs.
fn to_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    f32::from_bits(rounded & 0xffff_0000)
}

/// Whether all values of one side equal the other's after `round`, including NaNs.
fn all(from: &[f32], rounded: &[f32], round: impl Fn(f32) -> f32) -> bool {
    let parts = from.chunks(AT_ONCE).zip(rounded.chunks(AT_ONCE));
    from.len() == rounded.len()
        && parts.into_iter().all(|(from, rounded)| {
            let pairs = || from.iter().zip(rounded);
            // Branch-free per value, so that the compiler can vectorize it.
            let apart = pairs().fold(0, |apart, (from, rounded)| {
                apart | (round(*from).to_bits() ^ rounded.to_bits())
            });
            apart == 0
                || pairs().all(|(from, rounded)| {
                    (from.is_nan() && rounded.is_nan())
                        || (!from.is_nan() && round(*from).to_bits() == rounded.to_bits())
                })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_matches_the_conversion_of_each_type() {
        let mut values: Vec<f32> = (0..300).map(|i| (i as f32 - 150.0) / 37.0).collect();
        values.extend([
            0.0,
            -0.0,
            1e-40,
            3e38,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ]);
        let bf16: Vec<f32> = values
            .iter()
            .map(|v| half::bf16::from_f32(*v).to_f32())
            .collect();
        let f16: Vec<f32> = values
            .iter()
            .map(|v| half::f16::from_f32(*v).to_f32())
            .collect();
        let of = |a: &[f32], b: &[f32]| Roundings::ALL.after(a, b).0;
        assert_eq!(of(&values, &bf16), [true, false, false, false]);
        assert_eq!(of(&values, &f16), [false, true, false, false]);
        assert_eq!(of(&f16, &values), [false, false, false, true]);
        let mut other = bf16.clone();
        other[290] += 0.5;
        assert!(!Roundings::ALL.after(&values, &other).are_possible());
        let first = Roundings::ALL.after(&values[..9], &bf16[..9]);
        assert!(
            first
                .and(Roundings::ALL.after(&values[9..], &bf16[9..]))
                .are_possible()
        );
        assert!(
            !first
                .and(Roundings::ALL.after(&values[9..], &f16[9..]))
                .are_possible()
        );
    }
}
