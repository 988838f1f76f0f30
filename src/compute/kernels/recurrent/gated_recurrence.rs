//! The real-gated linear recurrent unit of Griffin (De et al. 2024, arXiv 2402.19427): a gate sets the decay of each channel.

use rayon::prelude::*;

use super::{begun, sigmoid, softplus};

/// Weights of the two gates, whose maps are block-diagonal.
#[derive(Debug, Clone, Copy)]
pub struct GatedRecurrence<'a> {
    pub n_blocks: usize,
    /// [block, width in, width out]
    pub input_gate: &'a [f32],
    /// [block, width out]
    pub input_bias: &'a [f32],
    /// [block, width in, width out]
    pub decay_gate: &'a [f32],
    /// [block, width out]
    pub decay_bias: &'a [f32],
    /// Largest decay rate of a channel, before the softplus. // [channel]
    pub decay: &'a [f32],
}

/// Multiplies the softplus of the decay.
const SHARPNESS: f32 = 8.0;

/// state ← a · state + √(1 − a²) · gate · x, out = state, for every channel. The first position of a text resets the state and
/// takes the input without the factor √(1 − a²). // x: [position, channel]
pub fn gated_recurrence(
    of: GatedRecurrence<'_>,
    x: &[f32],
    positions: &[usize],
    state: &mut Vec<f32>,
) -> Vec<f32> {
    let n = of.decay.len().max(1);
    let state = begun(state, n);
    let input_gate = through_blocks(x, of.input_gate, of.input_bias, of.n_blocks);
    let decay_gate = through_blocks(x, of.decay_gate, of.decay_bias, of.n_blocks);
    let rates: Vec<f32> = of.decay.iter().map(|decay| softplus(*decay)).collect();
    let mut out = vec![0.0; x.len()];
    for (position_idx, to) in out.chunks_mut(n).enumerate() {
        let begins = positions.get(position_idx) == Some(&0);
        let row = position_idx * n..(position_idx + 1) * n;
        let gates = input_gate[row.clone()].iter().zip(&decay_gate[row.clone()]);
        let inputs = x[row].iter().zip(gates).zip(&rates);
        for ((to, state), ((x, (input, decay)), rate)) in
            to.iter_mut().zip(state.iter_mut()).zip(inputs)
        {
            let log_kept = -SHARPNESS * sigmoid(*decay) * rate;
            let gated = x * sigmoid(*input);
            *state = if begins {
                gated
            } else {
                let room = (1.0 - (2.0 * log_kept).exp()).sqrt();
                log_kept.exp() * *state + gated * room
            };
            *to = *state;
        }
    }
    out
}

/// Applies a block-diagonal map to rows. // [position, channel]
fn through_blocks(x: &[f32], weights: &[f32], bias: &[f32], n_blocks: usize) -> Vec<f32> {
    let width = (bias.len() / n_blocks.max(1)).max(1);
    let mut out = vec![0.0; x.len()];
    let rows = out.par_chunks_mut(bias.len().max(1)).enumerate();
    rows.for_each(|(position_idx, row)| {
        row.copy_from_slice(bias);
        let x = &x[position_idx * bias.len()..(position_idx + 1) * bias.len()];
        let blocks = row.chunks_mut(width).zip(x.chunks(width));
        for ((to, x), weights) in blocks.zip(weights.chunks(width * width)) {
            for (x, weights) in x.iter().zip(weights.chunks(width)) {
                let pairs = to.iter_mut().zip(weights);
                pairs.for_each(|(to, weight)| *to += x * weight);
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_position_resets_the_state() {
        let of = GatedRecurrence {
            n_blocks: 1,
            input_gate: &[0.0],
            input_bias: &[0.0],
            decay_gate: &[0.0],
            decay_bias: &[0.0],
            decay: &[0.0],
        };
        let mut state = vec![100.0];
        let out = gated_recurrence(of, &[2.0, 0.0], &[0, 1], &mut state);
        let kept = (-4.0 * 2.0f32.ln()).exp();
        assert_eq!(out[0], 1.0);
        assert!((out[1] - kept).abs() < 1e-6, "{out:?}");
    }

    #[test]
    fn a_block_reads_only_its_own_channels() {
        let out = through_blocks(&[2.0, 3.0], &[10.0, 100.0], &[1.0, 0.0], 2);
        assert_eq!(out, [21.0, 300.0]);
    }
}
