//! Weights that are read where they are multiplied, while they are still in the processor's cache.

use std::fmt;
use std::ops::Range;

use super::HostLinear;
use crate::error::Result;

/// Reads the map of some outputs, as f32.
type Read<'a> = dyn Fn(Range<usize>) -> Result<HostLinear<'a>> + Send + Sync + 'a;

/// An affine map whose weights are not read yet. It is meant for a map that is multiplied once: every product reads it.
pub struct Later<'a> {
    pub n_out: usize,
    pub n_in: usize,
    /// Whether some outputs can be read without the others.
    pub in_parts: bool,
    /// Reads the map of some outputs; of all of them, unless it can be read `in_parts`.
    pub read: Box<Read<'a>>,
}

impl<'a> Later<'a> {
    /// Reads the whole map.
    ///
    /// # Errors
    /// When the weights cannot be read.
    pub fn whole(&self) -> Result<HostLinear<'a>> {
        (self.read)(0..self.n_out)
    }

    /// Ranges of outputs with about so many weights each, or all outputs where they can only be read together.
    pub(super) fn ranges(&self, n_weights: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let n_out = self.n_out;
        let n_at_once = if self.in_parts {
            n_weights / self.n_in.max(1)
        } else {
            n_out
        };
        let n_at_once = n_at_once.max(1);
        let starts = (0..n_out).step_by(n_at_once);
        starts.map(move |start| start..(start + n_at_once).min(n_out))
    }
}

impl fmt::Debug for Later<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("n_out", &self.n_out)
            .field("n_in", &self.n_in)
            .field("in_parts", &self.in_parts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::ops::{Cpu, HostWeight, Ops, Values};

    #[test]
    fn a_map_read_in_parts_gives_the_bits_of_the_whole() {
        let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
        let (n_out, n_in) = (1100, 4000);
        let weight: Vec<f32> = (0..n_out * n_in).map(value).collect();
        let bias: Vec<f32> = (0..n_out).map(|i| value(i + 7)).collect();
        let read = |outputs: Range<usize>| HostLinear {
            n_out: outputs.len(),
            n_in,
            weight: HostWeight::F32(Cow::Borrowed(
                &weight[outputs.start * n_in..outputs.end * n_in],
            )),
            is_input_major: false,
            bias: Some(Cow::Borrowed(&bias[outputs])),
            grams: Default::default(),
        };
        let later = || Later {
            n_out,
            n_in,
            in_parts: true,
            read: Box::new(|outputs| Ok(read(outputs))),
        };
        let parts: Vec<Range<usize>> = later().ranges(1 << 20).collect();
        assert_eq!(parts.first(), Some(&(0..262)));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(parts.last().map(|last| last.end), Some(n_out));
        for n_rows in [1, 16, 65] {
            let from = Values {
                width: n_in,
                data: (0..n_rows * n_in).map(value).collect(),
            };
            let [whole, in_parts] = [
                Cpu.linear_weights(read(0..n_out)),
                Cpu.linear_later(later()),
            ]
            .map(|weights| {
                let mut to = Values::default();
                let weights = weights.expect("the CPU takes any");
                Cpu.linear(&from, &weights, &mut to, &|| false)
                    .expect("it fits");
                to
            });
            assert!(whole.data == in_parts.data, "{n_rows} rows");
        }
    }
}
