//! Results of row blocks other than row summaries: column sums, pooled maps, sampled rows, and the probability of repeated
//! tokens.

use candle_core::{D, DType, Device, Result, Tensor};

use super::buffer::host;
use super::finished::Finished;
use super::group::Group;
use super::received::Received;
use super::scores::Block;
use crate::attention::{HeadSummary, Pooled, Repeats, RowSummary, sampled_queries};

/// Which tokens are copies of each other: each token is identified by its first position.
pub(super) struct Copies {
    first_of: Vec<f32>,
    /// The token identifier of each key, and that of the token before each key. // [1, key] twice
    tokens: [Tensor; 2],
}

impl Copies {
    /// Returns `None` if no token is repeated.
    pub fn new(repeats: &Repeats, n: usize, device: &Device) -> Result<Option<Self>> {
        let mut first_of: Vec<f32> = Vec::with_capacity(n);
        let mut has_copies = false;
        for at in 0..n {
            let earlier = repeats.before(at).next();
            has_copies |= earlier.is_some();
            first_of.push(earlier.map_or(at as f32, |earlier| first_of[earlier]));
        }
        if !has_copies {
            return Ok(None);
        }
        let before = std::iter::once(-1.0).chain(first_of.iter().copied());
        let before: Vec<f32> = before.take(n).collect();
        let row = |values: &[f32]| Tensor::from_slice(values, (1, n), device);
        Ok(Some(Self {
            tokens: [row(&first_of)?, row(&before)?],
            first_of,
        }))
    }

    /// The token of each key, and that of the key before it. // [1, key] twice
    #[cfg(feature = "cuda")]
    pub fn tokens(&self) -> &[Tensor; 2] {
        &self.tokens
    }

    /// Probability of earlier copies of each query's token, and of what followed them. // [head, row, 1] each
    pub fn masses(&self, block: &Block, pattern: &Tensor) -> Result<[Tensor; 2]> {
        let queries = &self.first_of[block.queries.clone()];
        let queries = Tensor::from_slice(queries, (block.n_rows(), 1), pattern.device())?;
        let [own, before] = &self.tokens;
        let is_copy = own
            .broadcast_eq(&queries)?
            .mul(&block.key_idx.broadcast_lt(&block.query_idx)?)?; // [row, key]
        // For a copy right before the query, the token after it is the query itself.
        let follows = before
            .broadcast_eq(&queries)?
            .mul(&block.key_idx.broadcast_le(&block.query_idx)?)?;
        let mass = |of: &Tensor| {
            let counts = of.to_dtype(DType::F32)?.unsqueeze(0)?;
            pattern.broadcast_mul(&counts)?.sum_keepdim(D::Minus1)
        };
        Ok([mass(&is_copy)?, mass(&follows)?])
    }
}

/// Statistics accumulated over the row blocks of a group.
pub(super) struct Tally {
    /// In f64. // [head, key]
    column_sums: Tensor,
    /// One list per head; the same for `pooled` and `samples`.
    rows: Vec<Vec<RowSummary>>,
    pooled: Vec<Pooled>,
    samples: Vec<Vec<f32>>,
    sampled: Vec<usize>,
}

impl Tally {
    pub fn new(group: &Group<'_>) -> Result<Self> {
        let (n_queries, n_keys) = (group.run.visibility.n_queries, group.run.visibility.n_keys);
        let n_heads = group.n_heads();
        Ok(Self {
            column_sums: Tensor::zeros((n_heads, n_keys), DType::F64, group.q.device())?,
            rows: vec![Vec::with_capacity(n_queries); n_heads],
            pooled: vec![Pooled::new(n_queries, n_keys); n_heads],
            samples: vec![Vec::new(); n_heads],
            sampled: sampled_queries(group.run.visibility),
        })
    }

    /// Adds a finished block.
    pub fn add(&mut self, group: &Group<'_>, block: &Block, finished: &Finished) -> Result<()> {
        let visibility = group.run.visibility;
        for (rows, of_head) in self
            .rows
            .iter_mut()
            .zip(finished.rows.chunks(block.n_rows()))
        {
            rows.extend_from_slice(of_head);
        }
        for query_idx in &self.sampled {
            if !block.queries.contains(query_idx) {
                continue;
            }
            let row_idx = query_idx - block.queries.start;
            let values = host(&finished.pattern.narrow(1, row_idx, 1)?)?; // [head, key]
            for (samples, row) in self.samples.iter_mut().zip(values.chunks(block.n_keys)) {
                samples.extend_from_slice(row);
            }
        }
        // Padded queries are ignored.
        let is_real = |query_idx: usize| visibility.is_real_query(query_idx);
        let received = match &self.pooled[..] {
            [] => return Ok(()),
            [like, ..] => Received::of(block, &finished.pattern, &is_real, like)?,
        };
        self.column_sums = self.column_sums.add(&received.column_sums)?;
        match &finished.on_host {
            None => self.pool(block, &received),
            Some(pattern) => {
                let heads = pattern.chunks(block.n_rows() * block.n_keys);
                for (pooled, pattern) in self.pooled.iter_mut().zip(heads) {
                    let rows = block.queries.clone().zip(pattern.chunks(block.n_keys));
                    for (query_idx, row) in rows.filter(|(query_idx, _)| is_real(*query_idx)) {
                        pooled.add_row(query_idx, row);
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes over the maximum of every tile.
    fn pool(&mut self, block: &Block, received: &Received) -> Result<()> {
        let values = host(&received.cells)?;
        let (_, n_heads, n_cols) = received.cells.dims3()?;
        let first = block.queries.start / self.pooled[0].queries_per_cell;
        for (nth, found) in values.chunks(n_cols).enumerate() {
            let (cell_row, head_idx) = (first + nth / n_heads, nth % n_heads);
            let cells = &mut self.pooled[head_idx].cells[cell_row * n_cols..][..n_cols];
            for (cell, value) in cells.iter_mut().zip(found) {
                // A NaN left by an earlier block stays.
                if *value > *cell {
                    *cell = *value;
                }
            }
        }
        Ok(())
    }

    /// Returns one summary per head of the group, in order.
    pub fn finish(self, group: &Group<'_>) -> Result<Vec<HeadSummary>> {
        let sums: Vec<Vec<f64>> = self.column_sums.to_vec2()?;
        let real_keys = group.run.visibility.real_keys().map(<[bool]>::to_vec);
        let mut heads = Vec::with_capacity(sums.len());
        let parts = self.rows.into_iter().zip(self.pooled).zip(self.samples);
        for (idx, (((rows, pooled), samples), sums)) in parts.zip(sums).enumerate() {
            heads.push(HeadSummary {
                rows,
                column_sums: sums.into_iter().map(|sum| sum as f32).collect(),
                k_norms: group.k_norms[group.kv_of(idx)].clone(),
                value_norms: group
                    .run
                    .value_norms_of(group.together.heads.start + idx)
                    .unwrap_or_default()
                    .to_vec(),
                real_keys: real_keys.clone(),
                global_tokens: Vec::new(),
                pooled,
                samples,
            });
        }
        Ok(heads)
    }
}
