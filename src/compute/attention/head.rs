//! Queries, keys and values of one head, as a view of the rows of all heads.

use std::ops::Range;

use super::spec::AttentionSpec;
use crate::kernels::{Matrix, MatrixMut, Threads, are_finite, product};

/// Queries, keys and values of all heads, as projected.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Only the queries that run; the first row belongs to [`Visibility::first_query`]. // [query, n_heads · d_head]
    pub q: &'a [f32],
    /// [key, n_kv_heads · d_head]
    pub k: &'a [f32],
    /// [key, n_kv_heads · d_value]
    pub v: &'a [f32],
}

/// A view of one head's rows.
pub(super) struct Head<'a> {
    pub(super) head_idx: usize,
    input: HeadInput<'a>,
    /// Query index of the first row of the input.
    first_query: usize,
    d_head: usize,
    d_value: usize,
    q_stride: usize,
    k_stride: usize,
    v_stride: usize,
    q_at: usize,
    k_at: usize,
    v_at: usize,
}

impl<'a> Head<'a> {
    pub(super) fn new(spec: &AttentionSpec, input: HeadInput<'a>, head_idx: usize) -> Self {
        Self::with_kv_head(spec, input, head_idx, spec.kv_head_of(head_idx))
    }

    /// A head and the kv head that serves it.
    pub(super) fn with_kv_head(
        spec: &AttentionSpec,
        input: HeadInput<'a>,
        head_idx: usize,
        kv_head_idx: usize,
    ) -> Self {
        Self {
            head_idx,
            input,
            first_query: 0,
            d_head: spec.d_head,
            d_value: spec.d_value,
            q_stride: spec.n_heads * spec.d_head,
            k_stride: spec.n_kv_heads * spec.d_head,
            v_stride: spec.n_kv_heads * spec.d_value,
            q_at: head_idx * spec.d_head,
            k_at: kv_head_idx * spec.d_head,
            v_at: kv_head_idx * spec.d_value,
        }
    }

    /// The same head, with rows that begin at query `first_query`.
    pub(super) fn with_first_query(self, first_query: usize) -> Self {
        Self {
            first_query,
            ..self
        }
    }

    pub(super) fn query(&self, query_idx: usize) -> &'a [f32] {
        &self.queries_from(query_idx).0[..self.d_head]
    }

    pub(super) fn key(&self, key_idx: usize) -> &'a [f32] {
        &self.input.k[key_idx * self.k_stride + self.k_at..][..self.d_head]
    }

    /// Queries from `query_idx` on, and their stride.
    pub(super) fn queries_from(&self, query_idx: usize) -> (&'a [f32], usize) {
        let at = (query_idx - self.first_query) * self.q_stride + self.q_at;
        (&self.input.q[at..], self.q_stride)
    }

    /// All keys, and their stride.
    pub(super) fn keys_from(&self) -> (&'a [f32], usize) {
        (&self.input.k[self.k_at..], self.k_stride)
    }

    /// All values, and their stride.
    pub(super) fn values_from(&self) -> (&'a [f32], usize) {
        (&self.input.v[self.v_at..], self.v_stride)
    }

    pub(super) fn has_finite_values(&self, mut keys: Range<usize>) -> bool {
        let value = |key_idx: usize| &self.input.v[key_idx * self.v_stride + self.v_at..];
        keys.all(|key_idx| are_finite(&value(key_idx)[..self.d_value]))
    }

    /// q·k of a block of queries with all keys. // [row, key]
    pub(super) fn products(&self, block: &Range<usize>, n_keys: usize, out: &mut [f32]) {
        let (q, _) = self.queries_from(block.start);
        let q = Matrix::new(q, block.len(), self.d_head, self.q_stride, 1);
        let k = Matrix::new(
            &self.input.k[self.k_at..],
            n_keys,
            self.d_head,
            self.k_stride,
            1,
        );
        let mut out = MatrixMut::new(out, block.len(), n_keys, n_keys);
        product(&mut out, q, k.transposed(), false, Threads::One);
    }

    /// Σ p·v of a block. // [row, d_value]
    pub(super) fn values(&self, pattern: &[f32], n_keys: usize, out: &mut [f32]) {
        let n_rows = pattern.len() / n_keys.max(1);
        let v = Matrix::new(
            &self.input.v[self.v_at..],
            n_keys,
            self.d_value,
            self.v_stride,
            1,
        );
        let mut out = MatrixMut::new(out, n_rows, self.d_value, self.d_value);
        product(
            &mut out,
            Matrix::row_major(pattern, n_rows, n_keys),
            v,
            false,
            Threads::One,
        );
    }
}
