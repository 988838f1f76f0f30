//! The gate between a recurrent state and the output map, with an optional RMS norm.

use rayon::prelude::*;

use super::{sigmoid, silu};

/// Whether norm or gate is applied first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOrder {
    NormFirst,
    GateFirst,
}

/// The function of a gate that multiplies a normed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormGate {
    Silu,
    Sigmoid,
}

impl NormGate {
    fn of(self, value: f32) -> f32 {
        match self {
            Self::Silu => silu(value),
            Self::Sigmoid => sigmoid(value),
        }
    }
}

/// An RMS norm of groups of channels, and its order with the gate.
#[derive(Debug, Clone, Copy)]
pub struct GatedNorm<'a> {
    pub order: GateOrder,
    pub gate: NormGate,
    /// Number of channels normalised together.
    pub width: usize,
    pub eps: f32,
    /// One value per channel, or per channel of one group.
    pub gain: &'a [f32],
}

impl GatedNorm<'_> {
    /// Normalises rows and multiplies them by a function of the gate, in place; without a norm it only multiplies by silu(gate).
    /// // rows, gates: [position, channel]
    pub fn apply(norm: Option<Self>, rows: &mut [f32], gates: &[f32], n_channels: usize) {
        let n = n_channels.max(1);
        let pairs = rows.par_chunks_mut(n).zip(gates.par_chunks(n));
        pairs.for_each(|(row, gates)| {
            let Some(norm) = norm else {
                return gate(row, gates, NormGate::Silu);
            };
            if norm.order == GateOrder::GateFirst {
                gate(row, gates, norm.gate);
            }
            norm.apply_to(row);
            if norm.order == GateOrder::NormFirst {
                gate(row, gates, norm.gate);
            }
        });
    }

    fn apply_to(&self, row: &mut [f32]) {
        let width = self.width.max(1);
        for (group_idx, group) in row.chunks_mut(width).enumerate() {
            let squared: f32 = group.iter().map(|v| v * v).sum();
            let inverse = 1.0 / (squared / width as f32 + self.eps).sqrt();
            let first = group_idx * width % self.gain.len().max(1);
            let pairs = group.iter_mut().zip(&self.gain[first..]);
            pairs.for_each(|(v, gain)| *v = *v * inverse * gain);
        }
    }
}

fn gate(row: &mut [f32], gates: &[f32], function: NormGate) {
    let pairs = row.iter_mut().zip(gates);
    pairs.for_each(|(v, gate)| *v *= function.of(*gate));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_before_the_norm_is_normalised_away() {
        let norm = |order| GatedNorm {
            order,
            gate: NormGate::Silu,
            width: 1,
            eps: 0.0,
            gain: &[2.0, 3.0],
        };
        let mut rows = [5.0, -4.0];
        GatedNorm::apply(Some(norm(GateOrder::GateFirst)), &mut rows, &[1.0, 1.0], 2);
        let is_near = |found: f32, expected: f32| (found - expected).abs() < 1e-6;
        assert!(is_near(rows[0], 2.0) && is_near(rows[1], -3.0), "{rows:?}");
        let mut rows = [5.0, -4.0];
        GatedNorm::apply(Some(norm(GateOrder::NormFirst)), &mut rows, &[1.0, 1.0], 2);
        assert_eq!(rows, [2.0 * silu(1.0), -3.0 * silu(1.0)]);
    }

    #[test]
    fn groups_share_a_gain_of_their_width() {
        let norm = GatedNorm {
            order: GateOrder::NormFirst,
            gate: NormGate::Silu,
            width: 1,
            eps: 0.0,
            gain: &[2.0],
        };
        let mut rows = [5.0, -4.0];
        norm.apply_to(&mut rows);
        assert_eq!(rows, [2.0, -2.0]);
    }
}
