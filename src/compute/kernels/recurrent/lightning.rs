//! Lightning attention (Qin et al. 2024, arXiv 2405.17381): linear attention whose weights decay with distance. Tokens of one
//! block attend to each other directly; a state holds earlier blocks.

use rayon::prelude::*;

use super::{begun, side_by_side};
use crate::kernels::vectors::columns;

/// Sizes of the heads, and their decays.
#[derive(Debug, Clone, Copy)]
pub struct Lightning<'a> {
    pub n_heads: usize,
    pub d_head: usize,
    /// Tokens of one block.
    pub n_block: usize,
    /// Factor of the state over a whole block. // [head]
    pub block_decay: &'a [f32],
    /// Factor of the state for a query, by its index in the block. // [head, n_block]
    pub query_decay: &'a [f32],
    /// Factor of a key that enters the state, by its index in the block. // [head, n_block]
    pub key_decay: &'a [f32],
    pub within: Within<'a>,
}

/// Factor of the product of a query and a key of the same block.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// [head, distance]
    ByDistance(&'a [f32]),
    /// [head, query, key]
    ByPair(&'a [f32]),
}

/// Inputs of each token. // [position, n_heads · d_head] each
#[derive(Debug, Clone, Copy)]
pub struct LightningTokens<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
}

impl Lightning<'_> {
    fn within(&self, head_idx: usize, query_idx: usize, key_idx: usize) -> f32 {
        let n = self.n_block;
        match self.within {
            Within::ByDistance(decays) => decays[head_idx * n + query_idx - key_idx],
            Within::ByPair(decays) => decays[(head_idx * n + query_idx) * n + key_idx],
        }
    }

    /// Runs one head over tokens. The first `n_over` are already processed: only their keys and values are present.
    fn head(
        &self,
        head_idx: usize,
        n_over: usize,
        queries: &[f32],
        [keys, values]: [&[f32]; 2],
        state: &mut [f32],
    ) -> Vec<f32> {
        let (d, n) = (self.d_head.max(1), self.n_block.max(1));
        let mut out = vec![0.0; queries.len()]; // [position, d_head]
        for (idx, (q, to)) in queries.chunks(d).zip(out.chunks_mut(d)).enumerate() {
            let position_idx = n_over + idx;
            let (first, query_idx) = (position_idx / n * n, position_idx % n);
            let of_block = first * d..(position_idx + 1) * d;
            let decay = self.query_decay[head_idx * n + query_idx];
            for (q, row) in q.iter().zip(state.chunks(d)) {
                let q = q * decay;
                to.iter_mut().zip(row).for_each(|(to, s)| *to += q * s);
            }
            let pairs = keys[of_block.clone()].chunks(d);
            let pairs = pairs.zip(values[of_block.clone()].chunks(d)).enumerate();
            for (key_idx, (k, v)) in pairs {
                let product: f32 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                let weight = product * self.within(head_idx, query_idx, key_idx);
                to.iter_mut().zip(v).for_each(|(to, v)| *to += weight * v);
            }
            if query_idx + 1 == n {
                let kept = self.block_decay[head_idx];
                state.iter_mut().for_each(|s| *s *= kept);
                let pairs = keys[of_block.clone()].chunks(d);
                let pairs = pairs.zip(values[of_block].chunks(d)).enumerate();
                for (key_idx, (k, v)) in pairs {
                    let decay = self.key_decay[head_idx * n + key_idx];
                    for (k, row) in k.iter().zip(state.chunks_mut(d)) {
                        let k = k * decay;
                        row.iter_mut().zip(v).for_each(|(s, v)| *s += k * v);
                    }
                }
            }
        }
        out
    }
}

/// Outputs of all heads for each token. `tail` holds keys and values of the unfinished block, `state` the result of earlier
/// blocks. // tail: [position, 2 · n_heads · d_head]; state: [head, d_head, d_head]; returns [position, n_heads · d_head]
pub fn lightning(
    of: Lightning<'_>,
    tokens: LightningTokens<'_>,
    tail: &mut Vec<f32>,
    state: &mut Vec<f32>,
) -> Vec<f32> {
    let d = of.d_head.max(1);
    let width = (of.n_heads * d).max(1);
    let n_over = tail.len() / (2 * width);
    let pairs = tokens.k.chunks(width).zip(tokens.v.chunks(width));
    pairs.for_each(|(k, v)| {
        tail.extend_from_slice(k);
        tail.extend_from_slice(v);
    });
    let state = begun(state, of.n_heads * d * d);
    let together = &*tail;
    let column =
        |rows: &[f32], stride: usize, first: usize| -> Vec<f32> { columns(rows, stride, first, d) };
    let heads = state.par_chunks_mut(d * d).enumerate();
    let outputs: Vec<Vec<f32>> = heads
        .map(|(head_idx, state)| {
            let first = head_idx * d;
            let q = column(tokens.q, width, first);
            let k = column(together, 2 * width, first);
            let v = column(together, 2 * width, width + first);
            of.head(head_idx, n_over, &q, [&k, &v], state)
        })
        .collect();
    let n_in_blocks = tail.len() / (2 * width) / of.n_block.max(1) * of.n_block;
    tail.drain(..n_in_blocks * 2 * width);
    side_by_side(&outputs, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decays of heads that multiply by `kept` per step, in blocks of `n_block` tokens.
    fn decays(kept: &[f32], n_block: usize) -> [Vec<f32>; 4] {
        let power = |share: f32, n: usize| share.powi(n as i32);
        let each = |by: &dyn Fn(f32, usize) -> f32| -> Vec<f32> {
            let heads = kept.iter();
            heads
                .flat_map(|share| (0..n_block).map(|idx| by(*share, idx)))
                .collect()
        };
        [
            kept.iter().map(|share| power(*share, n_block)).collect(),
            each(&|share, idx| power(share, idx + 1)),
            each(&|share, idx| power(share, n_block - 1 - idx)),
            each(&power),
        ]
    }

    fn run(kept: &[f32], n_block: usize, tokens: &[f32], cuts: &[usize]) -> Vec<f32> {
        let [block, query, key, within] = decays(kept, n_block);
        let of = Lightning {
            n_heads: kept.len(),
            d_head: 1,
            n_block,
            block_decay: &block,
            query_decay: &query,
            key_decay: &key,
            within: Within::ByDistance(&within),
        };
        let (mut tail, mut state) = (Vec::new(), Vec::new());
        let mut all = Vec::new();
        let ends = cuts.iter().copied().chain([tokens.len() / kept.len()]);
        let mut at = 0;
        for end in ends {
            let rows = &tokens[at * kept.len()..end * kept.len()];
            let brought = LightningTokens {
                q: rows,
                k: rows,
                v: rows,
            };
            all.extend(lightning(of, brought, &mut tail, &mut state));
            at = end;
        }
        all
    }

    #[test]
    fn blocks_give_the_same_result_as_a_sum_over_all_tokens() {
        let tokens = [1.0, 2.0, -1.0, 0.5, 3.0, -2.0, 1.5];
        let expected: Vec<f32> = (0..tokens.len())
            .map(|query_idx| {
                let all = tokens[..=query_idx].iter().enumerate();
                let sum: f32 = all
                    .map(|(idx, x)| 0.5f32.powi((query_idx - idx) as i32) * x * x)
                    .sum();
                tokens[query_idx] * sum
            })
            .collect();
        for n_block in [1, 2, 3, 16] {
            let found = run(&[0.5], n_block, &tokens, &[]);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-5, "{n_block}: {found}");
            }
        }
    }

    #[test]
    fn running_token_by_token_is_bit_identical_to_running_all_at_once() {
        let tokens: Vec<f32> = (0..22).map(|idx| (idx as f32 * 0.7).sin()).collect();
        let whole = run(&[0.9, 0.3], 4, &tokens, &[]);
        let cuts: Vec<usize> = (1..11).collect();
        assert_eq!(run(&[0.9, 0.3], 4, &tokens, &cuts), whole);
        assert_eq!(run(&[0.9, 0.3], 4, &tokens, &[4, 5, 9]), whole);
    }

    #[test]
    fn pairs_may_have_their_own_decays() {
        let of = Lightning {
            n_heads: 1,
            d_head: 1,
            n_block: 2,
            block_decay: &[0.0],
            query_decay: &[1.0, 1.0],
            key_decay: &[1.0, 1.0],
            within: Within::ByPair(&[1.0, 0.0, 10.0, 2.0]),
        };
        let rows = [1.0, 3.0];
        let tokens = LightningTokens {
            q: &rows,
            k: &rows,
            v: &rows,
        };
        let out = lightning(of, tokens, &mut Vec::new(), &mut Vec::new());
        assert_eq!(out, [1.0, 3.0 * (10.0 + 2.0 * 9.0)]);
    }
}
