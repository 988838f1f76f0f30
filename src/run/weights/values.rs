//! One pass over the values of a stored tensor: counts zeros and values at the limit of the dtype, and computes a hash.

use attnscope_checkpoint::Dtype;
use rayon::prelude::*;

/// Number of values per task.
const TASK: usize = 1 << 16;

/// Counts from one pass over a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seen {
    pub n: usize,
    pub n_zero: usize,
    pub n_one: usize,
    pub n_largest: usize,
    pub n_infinite: usize,
    /// Hash of the bits of all values, in order.
    pub hash: u64,
}

impl Seen {
    pub fn is_zero(&self) -> bool {
        self.n > 0 && self.n_zero == self.n
    }

    pub fn is_one(&self) -> bool {
        self.n > 0 && self.n_one == self.n
    }

    pub fn and(self, next: Self) -> Self {
        Self {
            n: self.n + next.n,
            n_zero: self.n_zero + next.n_zero,
            n_one: self.n_one + next.n_one,
            n_largest: self.n_largest + next.n_largest,
            n_infinite: self.n_infinite + next.n_infinite,
            hash: mixed(self.hash, next.hash),
        }
    }
}

/// Counts the values of a tensor that was stored as `dtype`.
pub(super) fn seen(values: &[f32], dtype: Dtype) -> Seen {
    let end = largest(dtype);
    let parts: Vec<Seen> = values
        .par_chunks(TASK)
        .map(|part| of_part(part, end))
        .collect();
    parts.into_iter().fold(Seen::default(), Seen::and)
}

/// Largest finite number of a 16-bit type; `None` for types that are not checked.
pub(super) fn largest(dtype: Dtype) -> Option<f32> {
    match dtype {
        Dtype::F16 => Some(half::f16::MAX.to_f32()),
        Dtype::Bf16 => Some(half::bf16::MAX.to_f32()),
        _ => None,
    }
}

fn of_part(values: &[f32], end: Option<f32>) -> Seen {
    // Without a limit, no finite value can equal it.
    let end = end.unwrap_or(f32::INFINITY);
    let mut seen = Seen {
        n: values.len(),
        ..Seen::default()
    };
    // One hash for every fourth value: a single one would wait for its product at each value.
    let mut hashes = [0; 4];
    for four in values.chunks(hashes.len()) {
        for (value, hash) in four.iter().zip(&mut hashes) {
            seen.n_zero += usize::from(*value == 0.0);
            seen.n_one += usize::from(*value == 1.0);
            let magnitude = value.abs();
            seen.n_infinite += usize::from(magnitude == f32::INFINITY);
            seen.n_largest += usize::from(magnitude == end && magnitude < f32::INFINITY);
            *hash = mixed(*hash, u64::from(value.to_bits()));
        }
    }
    seen.hash = hashes.into_iter().fold(0, mixed);
    seen
}

/// Adds one number to a hash: the finaliser of MurmurHash3 between a product and a rotation.
fn mixed(hash: u64, next: u64) -> u64 {
    let next = next.wrapping_add(0x2545_f491_4f6c_dd1d);
    let mixed = (hash.rotate_left(23) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_type_has_its_own_largest_value() {
        let values = [65504.0, -65504.0, 1.0, 0.0, f32::INFINITY, f32::NAN];
        let as_f16 = seen(&values, Dtype::F16);
        assert_eq!((as_f16.n_largest, as_f16.n_infinite), (2, 1));
        assert_eq!((as_f16.n_zero, as_f16.n_one, as_f16.n), (1, 1, 6));
        assert_eq!(seen(&values, Dtype::F32).n_largest, 0);
        assert_eq!(seen(&values, Dtype::Bf16).n_largest, 0);
        let end = [f32::from_bits(0x7f7f_0000)];
        assert_eq!(seen(&end, Dtype::Bf16).n_largest, 1);
    }

    #[test]
    fn hashes_differ_for_other_orders_and_lengths() {
        let of = |values: &[f32]| seen(values, Dtype::F32).hash;
        assert_eq!(of(&[1.0, 2.0]), of(&[1.0, 2.0]));
        assert_ne!(of(&[1.0, 2.0]), of(&[2.0, 1.0]));
        assert_ne!(of(&[0.0; 4]), of(&[0.0; 5]));
    }
}
