//! The keys that an indexer picks for every query: a mask that the model computes.

use std::ops::Range;

use rayon::prelude::*;

use super::mask::Visibility;
use super::top_keys::{GridWindow, KeyBlocks, KeyRank, TopKeys, keep_largest};
use crate::kernels::{Matrix, MatrixMut, Threads, product};
use crate::pace::Pace;

/// Queries of a block: two matrices of such rows and all keys are held per thread.
const BLOCK_ROWS: usize = 16;
const BITS: usize = u64::BITS as usize;

/// What an indexer scores keys with, positions applied.
///
/// With weights, a pair has one score for all heads: Σ over index heads of weight · max(0, q·k). Without weights, each index head
/// picks for the attention heads of its own group, by q·k. Positive factors are left out, since they change no rank.
#[derive(Debug, Clone, Copy)]
pub struct IndexInput<'a> {
    /// Only the queries that run. // [query, n_heads · d_head]
    pub q: &'a [f32],
    /// Of pooled blocks, each key is followed by what its shares in its block's key are made of.
    /// // [key, d_head], or [key, 2 · d_head]
    pub k: &'a [f32],
    /// [query, n_heads]
    pub weights: Option<&'a [f32]>,
    pub n_heads: usize,
    pub d_head: usize,
}

/// Which keys each query keeps: one bit per pair, for each group of heads.
#[derive(Debug)]
pub struct PickedKeys {
    first_query: usize,
    n_queries: usize,
    heads_per_group: usize,
    /// Columns of a picture's patches, where keys are picked by their windows.
    pub(super) n_columns: Option<usize>,
    /// Words of one row.
    stride: usize,
    /// [group, query, word]
    bits: Vec<u64>,
}

impl PickedKeys {
    /// Lets an indexer pick among the keys that each query sees; `None` if it was stopped, or if no indexer ranks the keys.
    pub fn of(
        top: TopKeys,
        input: IndexInput<'_>,
        (visibility, n_heads): (&Visibility, usize),
        pace: &dyn Pace,
    ) -> Option<Self> {
        let KeyRank::Indexer(blocks) = top.by else {
            return None;
        };
        let (first_query, n_queries) = (visibility.first_query(), visibility.n_queries_to_run());
        let stride = words_of_row(visibility);
        let n_groups = match input.weights {
            Some(_) => 1,
            None => input.n_heads.max(1),
        };
        let pooled = blocks
            .are_pooled
            .then(|| pooled_keys(input, blocks.size, visibility));
        let input = match &pooled {
            Some(keys) => IndexInput { k: keys, ..input },
            None => input,
        };
        let n_scored = match &pooled {
            Some(keys) => keys.len() / input.d_head.max(1),
            None => visibility.n_keys,
        };
        let pick = if blocks.are_pooled { pick_pools } else { pick };
        let bits = picked_rows(
            input,
            (visibility, n_groups, n_scored),
            pace,
            |query_idx, scores, candidates, bits| {
                let of = (visibility, query_idx);
                pick((top.n, blocks), of, scores, candidates, bits);
            },
        )?;
        Some(Self {
            first_query,
            n_queries,
            heads_per_group: (n_heads / n_groups).max(1),
            n_columns: None,
            stride,
            bits,
        })
    }

    /// Lets each query of a picture's patches keep the keys of its own window; there are `n_columns` columns of patches.
    pub fn of_windows(
        window: GridWindow,
        n_columns: usize,
        (visibility, n_heads): (&Visibility, usize),
    ) -> Self {
        let (first_query, n_queries) = (visibility.first_query(), visibility.n_queries_to_run());
        let stride = words_of_row(visibility);
        let places = (0..visibility.n_keys).map(|idx| window.of(idx, n_columns));
        let places: Vec<[usize; 2]> = places.collect();
        let mut bits = vec![0u64; n_queries * stride];
        for (nth, row) in bits.chunks_mut(stride).enumerate() {
            let own = window.of_query(first_query + nth, n_columns);
            let inside = places
                .iter()
                .enumerate()
                .filter(|(_, place)| **place == own);
            inside.for_each(|(key_idx, _)| row[key_idx / BITS] |= 1 << (key_idx % BITS));
        }
        Self {
            first_query,
            n_queries,
            heads_per_group: n_heads.max(1),
            n_columns: Some(n_columns),
            stride,
            bits,
        }
    }

    /// Lets an indexer pick `n` of the pools that each query sees; tokens stay as they are. `None` if it was stopped.
    pub fn of_pools(
        n: usize,
        input: IndexInput<'_>,
        (visibility, n_heads): (&Visibility, usize),
        pace: &dyn Pace,
    ) -> Option<Self> {
        let (first_query, n_queries) = (visibility.first_query(), visibility.n_queries_to_run());
        let n_tokens = visibility.n_queries;
        let n_pools = visibility.n_keys.saturating_sub(n_tokens);
        let stride = words_of_row(visibility);
        let bits = picked_rows(
            input,
            (visibility, 1, n_pools),
            pace,
            |query_idx, scores, candidates, bits| {
                candidates.clear();
                for key_idx in visibility.range(query_idx) {
                    match key_idx.checked_sub(n_tokens) {
                        Some(pool_idx) => candidates.push((scores[pool_idx], key_idx)),
                        None => bits[key_idx / BITS] |= 1 << (key_idx % BITS),
                    }
                }
                keep_largest(candidates, n);
                for (_, key_idx) in candidates.iter() {
                    bits[key_idx / BITS] |= 1 << (key_idx % BITS);
                }
            },
        )?;
        Some(Self {
            first_query,
            n_queries,
            heads_per_group: n_heads.max(1),
            stride,
            n_columns: None,
            bits,
        })
    }

    /// Whether a query of a head keeps a key.
    pub fn has(&self, head_idx: usize, query_idx: usize, key_idx: usize) -> bool {
        let row = head_idx / self.heads_per_group * self.n_queries + query_idx - self.first_query;
        let word = self.bits.get(row * self.stride + key_idx / BITS);
        word.is_some_and(|word| (word >> (key_idx % BITS)) & 1 == 1)
    }
}

impl IndexInput<'_> {
    /// Scores of some rows of queries with all keys, for one group of heads. // [row, key]
    fn scores(&self, group_idx: usize, rows: &Range<usize>, n_keys: usize) -> Vec<f32> {
        let width = self.n_heads * self.d_head;
        let keys = Matrix::row_major(self.k, n_keys, self.d_head).transposed();
        let of_head = |head_idx: usize, out: &mut [f32]| {
            let from = &self.q[rows.start * width + head_idx * self.d_head..];
            let q = Matrix::new(from, rows.len(), self.d_head, width, 1);
            let mut out = MatrixMut::new(out, rows.len(), n_keys, n_keys);
            product(&mut out, q, keys, false, Threads::One);
        };
        let mut scores = vec![0.0; rows.len() * n_keys];
        let Some(weights) = self.weights else {
            of_head(group_idx, &mut scores);
            return scores;
        };
        let mut products = vec![0.0; scores.len()];
        for head_idx in 0..self.n_heads {
            of_head(head_idx, &mut products);
            let both = scores
                .chunks_mut(n_keys.max(1))
                .zip(products.chunks(n_keys.max(1)));
            for ((sums, products), row) in both.zip(rows.clone()) {
                let weight = weights[row * self.n_heads + head_idx];
                let pairs = sums.iter_mut().zip(products);
                // Not `max`, which would turn a NaN into 0.
                pairs.for_each(|(sum, s)| *sum += if *s < 0.0 { 0.0 } else { weight * s });
            }
        }
        scores
    }
}

fn words_of_row(visibility: &Visibility) -> usize {
    visibility.n_keys.div_ceil(BITS).max(1)
}

/// Scores every query of every group of heads and lets `pick` set the bits of its row, block by block; `None` if it was stopped.
///
/// `pick` gets the query, its scores, room for candidates and its row. // [group, query, word]
fn picked_rows(
    input: IndexInput<'_>,
    (visibility, n_groups, n_scored): (&Visibility, usize, usize),
    pace: &dyn Pace,
    pick: impl Fn(usize, &[f32], &mut Vec<(f32, usize)>, &mut [u64]) + Sync,
) -> Option<Vec<u64>> {
    let (first_query, n_queries) = (visibility.first_query(), visibility.n_queries_to_run());
    let stride = words_of_row(visibility);
    let mut bits = vec![0; n_groups * n_queries * stride];
    let groups = bits.par_chunks_mut((n_queries * stride).max(1)).enumerate();
    let strips = groups.flat_map(|(group_idx, rows)| {
        let strips = rows.par_chunks_mut(BLOCK_ROWS * stride).enumerate();
        strips.map(move |(nth, rows)| (group_idx, nth * BLOCK_ROWS, rows))
    });
    let picked: Option<Vec<()>> = strips
        .map(|(group_idx, first, rows)| {
            if pace.stops() {
                return None;
            }
            let queries = first..first + rows.len() / stride;
            let scores = input.scores(group_idx, &queries, n_scored); // [row, key]
            let mut candidates = Vec::new();
            for (idx, (nth, bits)) in queries.zip(rows.chunks_mut(stride)).enumerate() {
                let scores = &scores[idx * n_scored..(idx + 1) * n_scored];
                pick(first_query + nth, scores, &mut candidates, bits);
            }
            Some(())
        })
        .collect();
    picked.map(|_| bits)
}

/// Picks the keys of one query. // scores: [key]
fn pick(
    (n, blocks): (usize, KeyBlocks),
    (visibility, query_idx): (&Visibility, usize),
    scores: &[f32],
    candidates: &mut Vec<(f32, usize)>,
    bits: &mut [u64],
) {
    let size = blocks.size.max(1);
    let own = query_idx / size;
    candidates.clear();
    for key_idx in visibility.range(query_idx) {
        if !visibility.is_seen(query_idx, key_idx) {
            continue;
        }
        let (block_idx, score) = (key_idx / size, scores[key_idx]);
        match candidates.last_mut() {
            Some((best, last)) if *last == block_idx => {
                if score > *best || score.is_nan() {
                    *best = score;
                }
            }
            _ => candidates.push((score, block_idx)),
        }
    }
    for (score, block_idx) in candidates.iter_mut() {
        if *block_idx <= own && own - *block_idx < blocks.n_local {
            *score = f32::INFINITY;
        }
    }
    keep_largest(candidates, n.div_ceil(size));
    for (_, block_idx) in candidates.iter() {
        for key_idx in block_idx * size..((block_idx + 1) * size).min(scores.len()) {
            bits[key_idx / BITS] |= 1 << (key_idx % BITS);
        }
    }
}

/// The key of every whole block from the first token on: the mean of its keys, each value weighed by a softmax over the block of the
/// values behind the keys. // [block, d_head]
fn pooled_keys(input: IndexInput<'_>, size: usize, visibility: &Visibility) -> Vec<f32> {
    let (d_head, first) = (input.d_head, visibility.first_real_key().unwrap_or(0));
    let n_blocks = visibility.n_keys.saturating_sub(first) / size.max(1);
    let mut pooled = vec![0.0; n_blocks * d_head];
    for (block_idx, to) in pooled.chunks_mut(d_head.max(1)).enumerate() {
        let start = first + block_idx * size;
        let rows = &input.k[start * 2 * d_head..(start + size) * 2 * d_head];
        for (column, to) in to.iter_mut().enumerate() {
            let made_of = || rows.chunks(2 * d_head).map(|row| row[d_head + column]);
            let largest = made_of().fold(f32::NEG_INFINITY, f32::max);
            let shares = made_of().map(|value| (value - largest).exp());
            let sum: f32 = shares.clone().sum();
            let keys = rows.chunks(2 * d_head).map(|row| row[column]);
            *to = keys
                .zip(shares)
                .map(|(key, share)| key * (share / sum))
                .sum();
        }
    }
    pooled
}

/// Picks whole blocks of one query by the scores of their keys, and keeps what it sees behind the last whole one. // scores: [block]
fn pick_pools(
    (n, blocks): (usize, KeyBlocks),
    (visibility, query_idx): (&Visibility, usize),
    scores: &[f32],
    candidates: &mut Vec<(f32, usize)>,
    bits: &mut [u64],
) {
    let (size, first) = (blocks.size.max(1), visibility.first_real_key().unwrap_or(0));
    let seen = visibility.range(query_idx);
    let seen = seen.filter(|key_idx| visibility.is_seen(query_idx, *key_idx));
    let n_seen = seen.count();
    candidates.clear();
    for (block_idx, score) in scores.iter().enumerate() {
        let keys = first + block_idx * size..first + (block_idx + 1) * size;
        let is_whole = keys.clone().all(|key_idx| visibility.is_real_key(key_idx));
        if is_whole && visibility.sees(query_idx, keys.end - 1) {
            candidates.push((*score, block_idx));
        }
    }
    keep_largest(candidates, (n / size).max(1));
    let mut keep = |key_idx: usize| bits[key_idx / BITS] |= 1 << (key_idx % BITS);
    for (_, block_idx) in candidates.iter() {
        let start = first + block_idx * size;
        (start..start + size).for_each(&mut keep);
    }
    let behind = first + n_seen - n_seen % size..first + n_seen;
    behind
        .filter(|key_idx| *key_idx < visibility.n_keys)
        .for_each(&mut keep);
}
