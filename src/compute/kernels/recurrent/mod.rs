//! Token mixers with a state of fixed size: each token updates the state and reads it.
//!
//! Every function takes the state left by earlier tokens and updates it. Running token by token is bit-identical to running all
//! at once.

mod delta_rule;
mod gated_norm;
mod gated_recurrence;
mod lightning;
mod selective_scan;
mod short_convolution;
mod state_space;

pub use delta_rule::{DeltaRule, DeltaTokens, delta_rule};
pub use gated_norm::{GateOrder, GatedNorm, NormGate};
pub use gated_recurrence::{GatedRecurrence, gated_recurrence};
pub use lightning::{Lightning, LightningTokens, Within, lightning};
pub use selective_scan::{ScanTokens, SelectiveScan, selective_scan};
pub use short_convolution::short_convolution;
pub use state_space::{StateSpace, StateSpaceTokens, state_space};

/// ln(1 + eˣ); returns x where both are equal in f32.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// 1 / (1 + e⁻ˣ).
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// x · sigmoid(x).
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Concatenates the outputs of heads along their width. // [head][position, width] → [position, head · width]
fn side_by_side(heads: &[Vec<f32>], width: usize) -> Vec<f32> {
    let n_positions = heads.first().map_or(0, |head| head.len() / width.max(1));
    let mut all = Vec::with_capacity(heads.len() * n_positions * width);
    for position_idx in 0..n_positions {
        for head in heads {
            all.extend_from_slice(&head[position_idx * width..(position_idx + 1) * width]);
        }
    }
    all
}

/// The state; zeros if no token has set it yet.
fn begun(state: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if state.len() != n {
        state.clear();
        state.resize(n, 0.0);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_is_continuous_where_it_switches_to_x() {
        assert!((softplus(20.0) - softplus(20.000_01)).abs() < 1e-4);
        assert!((f64::from(softplus(-3.0)) - (-3.0f64).exp().ln_1p()).abs() < 1e-8);
    }

    #[test]
    fn outputs_of_heads_are_concatenated() {
        let heads = [vec![1.0, 2.0], vec![3.0, 4.0]];
        assert_eq!(side_by_side(&heads, 1), [1.0, 3.0, 2.0, 4.0]);
    }
}
