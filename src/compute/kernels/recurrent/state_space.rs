//! The state space of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): each head's state decays by one factor per token.

use rayon::prelude::*;

use super::{begun, side_by_side};

/// Sizes and weights that do not depend on tokens.
#[derive(Debug, Clone, Copy)]
pub struct StateSpace<'a> {
    pub n_heads: usize,
    pub d_head: usize,
    /// Number of groups: consecutive heads that share B and C.
    pub n_groups: usize,
    pub d_state: usize,
    /// Change of the state's logarithm per unit step: negative. // [head]
    pub decay: &'a [f32],
    /// Factor of a head's input that is added to its output. // [head]
    pub skip: &'a [f32],
}

/// Inputs of each token.
#[derive(Debug, Clone, Copy)]
pub struct StateSpaceTokens<'a> {
    /// [position, n_heads · d_head]
    pub x: &'a [f32],
    /// B: direction in which the input is written to the state. // [position, n_groups · d_state]
    pub b: &'a [f32],
    /// C: direction in which the state is read. // [position, n_groups · d_state]
    pub c: &'a [f32],
    /// [position, head]
    pub steps: &'a [f32],
}

/// state ← e^(step · decay) · state + step · b xᵀ, out = c · state + skip · x, for every head. // [position, n_heads · d_head]
pub fn state_space(
    of: StateSpace<'_>,
    tokens: StateSpaceTokens<'_>,
    state: &mut Vec<f32>,
) -> Vec<f32> {
    let StateSpace {
        n_heads,
        d_head,
        n_groups,
        d_state,
        ..
    } = of;
    let state = begun(state, n_heads * d_state * d_head); // [head, d_state, d_head]
    let n_positions = tokens.steps.len() / n_heads.max(1);
    let per_group = (n_heads / n_groups.max(1)).max(1);
    let heads = state.par_chunks_mut((d_state * d_head).max(1)).enumerate();
    let outputs: Vec<Vec<f32>> = heads
        .map(|(head_idx, state)| {
            let group_idx = head_idx / per_group;
            let mut out = vec![0.0; n_positions * d_head];
            for (position_idx, to) in out.chunks_mut(d_head.max(1)).enumerate() {
                let step = tokens.steps[position_idx * n_heads + head_idx];
                let kept = (step * of.decay[head_idx]).exp();
                let x = &tokens.x[(position_idx * n_heads + head_idx) * d_head..][..d_head];
                let along = (position_idx * n_groups + group_idx) * d_state;
                let (b, c) = (
                    &tokens.b[along..along + d_state],
                    &tokens.c[along..along + d_state],
                );
                for ((row, b), c) in state.chunks_mut(d_head.max(1)).zip(b).zip(c) {
                    let written = step * b;
                    for ((state, x), to) in row.iter_mut().zip(x).zip(to.iter_mut()) {
                        *state = kept * *state + written * x;
                        *to += c * *state;
                    }
                }
                let pairs = to.iter_mut().zip(x);
                pairs.for_each(|(to, x)| *to += of.skip[head_idx] * x);
            }
            out
        })
        .collect();
    side_by_side(&outputs, d_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_one_value_is_a_decaying_sum() {
        let of = StateSpace {
            n_heads: 1,
            d_head: 1,
            n_groups: 1,
            d_state: 1,
            decay: &[-1.0],
            skip: &[10.0],
        };
        let tokens = StateSpaceTokens {
            x: &[1.0, 2.0],
            b: &[1.0, 1.0],
            c: &[1.0, 3.0],
            steps: &[1.0, 0.5],
        };
        let mut state = Vec::new();
        let out = state_space(of, tokens, &mut state);
        let second = (-0.5f32).exp() + 0.5 * 2.0;
        assert_eq!(out, [1.0 + 10.0, 3.0 * second + 20.0]);
        assert_eq!(state, [second]);
    }
}
