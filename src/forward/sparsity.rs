//! Sparse gates: only those above a quantile of a normal distribution with the mean and spread of their row open.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

/// Subtracts from every gate the value below which `share` of its row would be if the row were normal, and clamps at 0.
/// // gates: [position, d_mlp]
pub(super) fn cut_off<O: Ops>(ops: &O, share: f32, gates: &mut O::Buffer) -> Result<()> {
    let host = ops.get(gates)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    let spreads = quantile(f64::from(share)) as f32;
    for row in values.chunks_mut(width.max(1)) {
        let n = row.len() as f32;
        let mean = row.iter().sum::<f32>() / n;
        let square: f32 = row.iter().map(|v| (v - mean) * (v - mean)).sum();
        let cut = mean + (square / n).sqrt() * spreads;
        row.iter_mut().for_each(|v| *v = (*v - cut).max(0.0));
    }
    ops.put(&values, width, gates)
}

/// Returns the quantile of the standard normal distribution, by bisection.
fn quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_compute::ops::Cpu;

    #[test]
    fn quantiles_match_published_tables() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.95, 1.644_853_626_951),
            (0.1, -1.281_551_565_545),
        ] {
            assert!((quantile(share) - expected).abs() < 1e-9, "{share}");
        }
    }

    #[test]
    fn a_share_of_one_half_cuts_a_row_off_at_its_mean() {
        let mut gates = <Cpu as Ops>::Buffer::default();
        Cpu.put(&[1.0, 2.0, 3.0, 6.0], 4, &mut gates).expect("put");
        cut_off(&Cpu, 0.5, &mut gates).expect("cut off");
        let found = Cpu.get(&gates).expect("a row").values.into_owned();
        for (found, expected) in found.iter().zip([0.0, 0.0, 0.0, 3.0]) {
            assert!((found - expected).abs() < 1e-5, "{found}");
        }
    }
}
