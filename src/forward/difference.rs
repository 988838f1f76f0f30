//! Differential attention (Ye et al. 2024, arXiv 2410.05258): a head and its partner, half of all heads later, read the same
//! values, and λ times the partner's output is subtracted. Both patterns are softmaxes; only their difference has negative
//! weights.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{DifferenceSource, ProjectionSpec};

use super::weights::WeightReader;

/// Parameters for combining each head with its partner.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    pub lambda: f32,
    keeps: f32,
    eps: f32,
}

impl Difference {
    /// Returns the factor of each head's output in one row, chosen so that a pair's sum is its normed difference.
    /// // row: [n_heads · d_value]
    pub fn factors(&self, row: &[f32], n_heads: usize) -> Vec<f32> {
        let (half, width) = (n_heads / 2, row.len() / n_heads.max(1));
        let (added, taken) = row.split_at(half * width);
        let pairs = added
            .chunks(width.max(1))
            .zip(taken.chunks(width.max(1)))
            .map(|(added, taken)| {
                let squares = added.iter().zip(taken).map(|(a, b)| {
                    let difference = f64::from(a - self.lambda * b);
                    difference * difference
                });
                let mean = squares.sum::<f64>() / width.max(1) as f64;
                (f64::from(self.keeps) / (mean + f64::from(self.eps)).sqrt()) as f32
            });
        let of_added: Vec<f32> = pairs.collect();
        let of_taken = of_added.iter().map(|factor| -self.lambda * factor);
        let of_taken: Vec<f32> = of_taken.collect();
        [of_added, of_taken].concat()
    }

    /// Multiplies all heads' outputs by their factors. // z: [row, n_heads · d_value]
    pub fn apply(&self, z: &mut [f32], n_heads: usize, width: usize) {
        for row in z.chunks_mut(width.max(1)) {
            let factors = self.factors(row, n_heads);
            for (head, factor) in row.chunks_mut((width / n_heads.max(1)).max(1)).zip(factors) {
                head.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

/// Combines heads with their partners, in differential attention.
pub(super) fn difference_of<O: Ops>(
    ops: &O,
    difference: Option<Difference>,
    n_heads: usize,
    z: &mut O::Buffer,
) -> Result<()> {
    let Some(difference) = difference else {
        return Ok(());
    };
    let host = ops.get(z)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    difference.apply(&mut values, n_heads, width);
    ops.put_own(values, width, z)
}

/// Gives every key head the values of two heads: its own in its half, and its partner's in the other half.
pub(super) fn pair_values<O: Ops>(
    shelf: WeightReader<'_, O>,
    spec: &ProjectionSpec,
    n_kv_heads: usize,
    v: &mut O::Buffer,
) -> Result<()> {
    if spec.difference.is_none() {
        return Ok(());
    }
    let host = shelf.ops.get(v)?;
    let (width, half) = (host.width, n_kv_heads / 2);
    let d = width / n_kv_heads.max(1);
    let mut paired = Vec::with_capacity(2 * host.values.len());
    for row in host.values.chunks(width.max(1)) {
        for kv_idx in 0..n_kv_heads {
            for of in [kv_idx % half.max(1), half + kv_idx % half.max(1)] {
                paired.extend_from_slice(&row[of * d..(of + 1) * d]);
            }
        }
    }
    shelf.ops.put_own(paired, 2 * width, v)
}

/// Reads the vectors that λ is computed from.
///
/// # Errors
/// When one is missing or has the wrong shape.
pub fn read_difference(source: &DifferenceSource, tensors: &Tensors) -> Result<Difference> {
    let vector = |name: &String| tensors.expect(name, &[source.d_head])?.widen();
    let [q1, k1, q2, k2] = &source.lambdas;
    let power = |q: &String, k: &String| -> Result<f32> {
        let (q, k) = (vector(q)?, vector(k)?);
        Ok(q.iter()
            .zip(k.iter())
            .map(|(q, k)| q * k)
            .sum::<f32>()
            .exp())
    };
    Ok(Difference {
        lambda: power(q1, k1)? - power(q2, k2)? + source.first,
        keeps: 1.0 - source.first,
        eps: source.eps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_heads_sums_to_its_normed_difference() {
        let difference = Difference {
            lambda: 0.5,
            keeps: 0.8,
            eps: 0.0,
        };
        // Two pairs of heads of width 2: the first pair is (3, 4) − ½ · (2, −4) = (2, 6).
        let mut z = vec![3.0, 4.0, 1.0, 0.0, 2.0, -4.0, 0.0, 2.0];
        difference.apply(&mut z, 4, 8);
        let root = 20f32.sqrt();
        let sums = [z[0] + z[4], z[1] + z[5]];
        assert!((sums[0] - 0.8 * 2.0 / root).abs() < 1e-6);
        assert!((sums[1] - 0.8 * 6.0 / root).abs() < 1e-6);
        // The second pair is (1, 0) − (0, 1).
        assert!((z[2] + z[6] - 0.8).abs() < 1e-6 && (z[3] + z[7] + 0.8).abs() < 1e-6);
    }
}
