//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464): a state that decays, and is corrected towards the
//! value of each key.

use rayon::prelude::*;

use super::{begun, side_by_side};

/// Sizes of the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaRule {
    /// Number of query and key heads; each serves the same number of value heads.
    pub n_key_heads: usize,
    pub d_key: usize,
    pub n_value_heads: usize,
    pub d_value: usize,
    /// Each channel of a key decays by itself (Kimi Team 2025, arXiv 2510.26692), not all channels of a head together.
    pub by_channel: bool,
    /// The value heads of a key head are as far apart as there are key heads, not consecutive.
    pub is_tiled: bool,
}

/// Inputs of each token.
#[derive(Debug, Clone, Copy)]
pub struct DeltaTokens<'a> {
    /// [position, n_key_heads · d_key]
    pub q: &'a [f32],
    /// [position, n_key_heads · d_key]
    pub k: &'a [f32],
    /// [position, n_value_heads · d_value]
    pub v: &'a [f32],
    /// Logarithm of the factor that keeps the state. // [position, value head], by channel [position, value head · d_key]
    pub log_kept: &'a [f32],
    /// Strength of the correction (β). // [position, value head]
    pub strength: &'a [f32],
}

/// Added to the squared length of a query or key before dividing by its length.
const EPS: f32 = 1e-6;

/// state ← kept · state, then state += k (strength · (v − kᵀ state))ᵀ, out = qᵀ state / √d_key, for every value head, with
/// queries and keys normalised to length 1. // [position, n_value_heads · d_value]
pub fn delta_rule(of: DeltaRule, tokens: DeltaTokens<'_>, state: &mut Vec<f32>) -> Vec<f32> {
    let DeltaRule {
        n_key_heads,
        d_key,
        n_value_heads,
        d_value,
        by_channel,
        is_tiled,
    } = of;
    let state = begun(state, n_value_heads * d_key * d_value); // [value head, d_key, d_value]
    let n_positions = tokens.strength.len() / n_value_heads.max(1);
    let per_key = (n_value_heads / n_key_heads.max(1)).max(1);
    let scale = (d_key as f32).powf(-0.5);
    let heads = state.par_chunks_mut((d_key * d_value).max(1)).enumerate();
    let outputs: Vec<Vec<f32>> = heads
        .map(|(head_idx, state)| {
            let mut out = vec![0.0; n_positions * d_value];
            let mut correction = vec![0.0; d_value];
            let (mut q, mut k) = (vec![0.0; d_key], vec![0.0; d_key]);
            let mut kept = vec![0.0; d_key];
            let key_head = if is_tiled {
                head_idx % n_key_heads.max(1)
            } else {
                head_idx / per_key
            };
            for (position_idx, to) in out.chunks_mut(d_value.max(1)).enumerate() {
                let at = (position_idx * n_key_heads + key_head) * d_key;
                of_length_one(&tokens.q[at..at + d_key], scale, &mut q);
                of_length_one(&tokens.k[at..at + d_key], 1.0, &mut k);
                let at = position_idx * n_value_heads + head_idx;
                let strength = tokens.strength[at];
                if by_channel {
                    let of_head = &tokens.log_kept[at * d_key..(at + 1) * d_key];
                    let pairs = kept.iter_mut().zip(of_head);
                    pairs.for_each(|(kept, log)| *kept = log.exp());
                } else {
                    kept.fill(tokens.log_kept[at].exp());
                }
                let v = &tokens.v[at * d_value..(at + 1) * d_value];
                correction.fill(0.0);
                for ((row, k), kept) in state.chunks_mut(d_value.max(1)).zip(&k).zip(&kept) {
                    for (state, said) in row.iter_mut().zip(correction.iter_mut()) {
                        *state *= kept;
                        *said += *state * k;
                    }
                }
                for (said, v) in correction.iter_mut().zip(v) {
                    *said = (v - *said) * strength;
                }
                for ((row, k), q) in state.chunks_mut(d_value.max(1)).zip(&k).zip(&q) {
                    let pairs = row.iter_mut().zip(&correction).zip(to.iter_mut());
                    for ((state, correction), to) in pairs {
                        *state += k * correction;
                        *to += *state * q;
                    }
                }
            }
            out
        })
        .collect();
    side_by_side(&outputs, d_value)
}

/// A vector normalised to length 1, times a factor.
fn of_length_one(from: &[f32], factor: f32, to: &mut [f32]) {
    let squared: f32 = from.iter().map(|v| v * v).sum();
    let inverse = factor / (squared + EPS).sqrt();
    let pairs = to.iter_mut().zip(from);
    pairs.for_each(|(to, v)| *to = v * inverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_returns_its_last_value() {
        let of = DeltaRule {
            n_key_heads: 1,
            d_key: 2,
            n_value_heads: 1,
            d_value: 1,
            by_channel: false,
            is_tiled: false,
        };
        let tokens = DeltaTokens {
            q: &[1.0, 0.0, 0.0, 3.0, 2.0, 0.0],
            k: &[1.0, 0.0, 0.0, 1.0, 4.0, 0.0],
            v: &[5.0, 7.0, 9.0],
            log_kept: &[0.0; 3],
            strength: &[1.0; 3],
        };
        let out = delta_rule(of, tokens, &mut Vec::new());
        let scale = 0.5f32.sqrt();
        for (found, expected) in out.iter().zip([5.0, 7.0, 9.0]) {
            assert!((found - expected * scale).abs() < 1e-4, "{out:?}");
        }
    }

    #[test]
    fn a_forgotten_channel_alone_is_not_read() {
        let of = DeltaRule {
            n_key_heads: 1,
            d_key: 2,
            n_value_heads: 1,
            d_value: 1,
            by_channel: true,
            is_tiled: false,
        };
        let tokens = DeltaTokens {
            q: &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
            k: &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            v: &[5.0, 7.0, 0.0, 0.0],
            log_kept: &[0.0, 0.0, 0.0, 0.0, -50.0, 0.0, 0.0, 0.0],
            strength: &[1.0; 4],
        };
        let out = delta_rule(of, tokens, &mut Vec::new());
        let scale = 0.5f32.sqrt();
        assert!(out[2].abs() < 1e-6, "{out:?}");
        assert!((out[3] - 7.0 * scale).abs() < 1e-4, "{out:?}");
    }

    #[test]
    fn a_forgotten_state_is_not_read() {
        let of = DeltaRule {
            n_key_heads: 1,
            d_key: 1,
            n_value_heads: 1,
            d_value: 1,
            by_channel: false,
            is_tiled: false,
        };
        let tokens = DeltaTokens {
            q: &[1.0, 1.0],
            k: &[1.0, 0.0],
            v: &[5.0, 0.0],
            log_kept: &[0.0, -50.0],
            strength: &[1.0, 1.0],
        };
        let out = delta_rule(of, tokens, &mut Vec::new());
        assert!(out[0] > 4.9 && out[1].abs() < 1e-6, "{out:?}");
    }
}
