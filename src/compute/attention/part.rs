//! Any part of one head's pattern at full resolution, from its stored queries and keys: for patterns too large to hold whole.

use std::ops::Range;

use super::head_bias::HeadBias;
use super::mask::Visibility;
use super::row::{HeadMath, finish_row};
use super::spec::AttentionSpec;
use crate::kernels::simd::{Level, row_norms};
use crate::kernels::{Matrix, MatrixMut, Threads, product};

/// Queries and keys of one head, as they enter the scores.
#[derive(Debug, Clone)]
pub struct HeadRows {
    pub spec: AttentionSpec,
    pub head_idx: usize,
    pub visibility: Visibility,
    /// [query, d_head]
    pub q: Vec<f32>,
    /// [key, d_head]
    pub k: Vec<f32>,
    /// The keys that global tokens attend to. // [key, d_head]
    pub global_k: Option<Vec<f32>>,
    pub sink: Option<f32>,
    /// The head's learned bias.
    pub learned: HeadBias,
    /// Token positions, if a bias uses them. // [position]
    pub positions: Vec<usize>,
    /// ‖v W_O‖, if known. // [key]
    pub value_norms: Option<Vec<f32>>,
    /// ‖v W_O‖ of the values that global tokens attend to. // [key]
    pub global_value_norms: Option<Vec<f32>>,
}

/// Some cells of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadPart {
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    /// −∞ where masked. // [query, key]
    pub scores: Vec<f32>,
    /// 0 where masked. // [query, key]
    pub pattern: Vec<f32>,
}

impl HeadRows {
    /// Computes some cells. Whole rows are computed, one at a time; cells outside `keys` are discarded.
    ///
    /// `adjust` changes a row of the pattern before it is cut. Not for a softmax over queries, whose rows depend on each other.
    pub fn part(
        &self,
        queries: Range<usize>,
        keys: Range<usize>,
        adjust: impl Fn(&mut Vec<f32>),
    ) -> HeadPart {
        let (n_keys, d_head) = (self.visibility.n_keys, self.spec.d_head);
        let level = Level::current();
        let norms = |k: &[f32]| row_norms(level, k, d_head, n_keys, d_head);
        let k_norms = norms(&self.k);
        let math = HeadMath {
            spec: &self.spec,
            head_idx: self.head_idx,
            visibility: &self.visibility,
            sink: self.sink,
            k_norms: &k_norms,
            value_norms: None,
            log_sums: None,
            positions: &self.positions,
            learned: &self.learned,
        };
        let mut products = vec![0.0; queries.len() * n_keys];
        let multiply = |queries: Range<usize>, k: &[f32], products: &mut [f32]| {
            product(
                &mut MatrixMut::new(products, queries.len(), n_keys, n_keys),
                Matrix::row_major(&self.q[queries.start * d_head..], queries.len(), d_head),
                Matrix::row_major(k, n_keys, d_head).transposed(),
                false,
                Threads::Pool,
            );
        };
        multiply(queries.clone(), &self.k, &mut products);
        let global = self.global_k.as_ref().map(|k| (k, norms(k)));
        let mut part = HeadPart {
            scores: Vec::with_capacity(queries.len() * keys.len()),
            pattern: Vec::with_capacity(queries.len() * keys.len()),
            queries: queries.clone(),
            keys: keys.clone(),
        };
        let mut pattern = vec![0.0; n_keys];
        for (row, query_idx) in products.chunks_mut(n_keys).zip(queries) {
            let mut math = math;
            if let Some((k, norms)) = &global
                && self.visibility.is_global(query_idx)
            {
                multiply(query_idx..query_idx + 1, k, row);
                math.k_norms = norms;
            }
            finish_row(&math, query_idx, 1.0, row, &mut pattern);
            adjust(&mut pattern);
            part.scores.extend_from_slice(&row[keys.clone()]);
            part.pattern.extend_from_slice(&pattern[keys.clone()]);
        }
        part
    }
}
