//! The selective scan of Mamba (Gu and Dao 2023, arXiv 2312.00752): each state of a channel has its own decay.

use rayon::prelude::*;

use super::{begun, side_by_side};

/// Weights that do not depend on tokens.
#[derive(Debug, Clone, Copy)]
pub struct SelectiveScan<'a> {
    pub d_state: usize,
    /// Change of a state's logarithm per unit step: negative. // [channel, d_state]
    pub decay: &'a [f32],
    /// Factor of a channel's input that is added to its output. // [channel]
    pub skip: &'a [f32],
}

/// Inputs of each token.
#[derive(Debug, Clone, Copy)]
pub struct ScanTokens<'a> {
    /// [position, channel]
    pub x: &'a [f32],
    /// B: direction in which the input is written to the state, by head of channels. // [position, n_heads · d_state]
    pub b: &'a [f32],
    /// C: direction in which the state is read. // [position, n_heads · d_state]
    pub c: &'a [f32],
    /// [position, channel]
    pub steps: &'a [f32],
}

/// Channels per task.
const TOGETHER: usize = 64;

/// state ← e^(step · decay) · state + step · b · x, out = c · state + skip · x, for every channel. // [position, channel]
pub fn selective_scan(
    of: SelectiveScan<'_>,
    tokens: ScanTokens<'_>,
    state: &mut Vec<f32>,
) -> Vec<f32> {
    let (n, d_state) = (of.skip.len().max(1), of.d_state.max(1));
    let state = begun(state, n * d_state); // [channel, d_state]
    let n_positions = tokens.x.len() / n;
    let width = tokens.b.len() / n_positions.max(1);
    let n_each = n / (width / d_state).max(1);
    let channel = |(channel_idx, state): (usize, &mut [f32])| -> Vec<f32> {
        let decay = &of.decay[channel_idx * d_state..][..d_state];
        let position = |position_idx: usize| {
            let at = position_idx * n + channel_idx;
            let (step, x) = (tokens.steps[at], tokens.x[at]);
            let first = position_idx * width + channel_idx / n_each.max(1) * d_state;
            let along = first..first + d_state;
            let (b, c) = (&tokens.b[along.clone()], &tokens.c[along]);
            let mut sum = 0.0;
            for (((state, decay), b), c) in state.iter_mut().zip(decay).zip(b).zip(c) {
                *state = (step * decay).exp() * *state + step * b * x;
                sum += *state * c;
            }
            sum + of.skip[channel_idx] * x
        };
        (0..n_positions).map(position).collect()
    };
    let outputs: Vec<Vec<f32>> = state
        .par_chunks_mut(d_state)
        .enumerate()
        .with_min_len(TOGETHER)
        .map(channel)
        .collect();
    side_by_side(&outputs, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_channel_has_its_own_decay() {
        let of = SelectiveScan {
            d_state: 2,
            decay: &[-1.0, -2.0],
            skip: &[0.5],
        };
        let tokens = ScanTokens {
            x: &[1.0, 0.0],
            b: &[1.0, 1.0, 0.0, 0.0],
            c: &[1.0, 0.0, 1.0, 1.0],
            steps: &[2.0, 1.0],
        };
        let out = selective_scan(of, tokens, &mut Vec::new());
        let decayed = 2.0 * (-1.0f32).exp() + 2.0 * (-2.0f32).exp();
        assert!((out[0] - 2.5).abs() < 1e-6, "{out:?}");
        assert!((out[1] - decayed).abs() < 1e-6, "{out:?}");
    }
}
