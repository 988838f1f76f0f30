//! log Σ of exp(s) over queries or heads on a candle device: the first of two passes of a softmax that does not run over keys.

use candle_core::{DType, Result, Tensor};

use super::group::Group;
use super::scores::{Block, products, scaled, scores};

/// Initial maximum: finite, so that −inf − −inf does not occur.
const LOWEST: f32 = f32::MIN;

/// log Σ over all heads of each pair of a block; `everyone` has all heads of the attention. // [1, row, key]
pub(super) fn sum_over_heads(everyone: &Group<'_>, block: &Block) -> Result<Tensor> {
    let scaled = scaled(everyone, block, &products(everyone, block)?)?;
    let scores = scores(everyone, block, &scaled)?;
    let scores = block.where_seen(&scores, f32::NEG_INFINITY)?;
    let max = scores.max_keepdim(0)?.maximum(LOWEST)?;
    let sum = scores.broadcast_sub(&max)?.exp()?.sum_keepdim(0)?;
    sum.log()?.add(&max)
}

/// Running sums per key, relative to the largest score so far.
pub(super) struct Columns {
    /// [head, 1, key]
    max: Tensor,
    /// In f64. // [head, 1, key]
    sum: Tensor,
}

impl Columns {
    pub fn new(group: &Group<'_>) -> Result<Self> {
        let shape = (group.n_heads(), 1, group.run.visibility.n_keys);
        let device = group.q.device();
        Ok(Self {
            max: Tensor::full(LOWEST, shape, device)?,
            sum: Tensor::zeros(shape, DType::F64, device)?,
        })
    }

    /// Adds the scores of one block.
    pub fn add(&mut self, group: &Group<'_>, block: &Block) -> Result<()> {
        let scaled = scaled(group, block, &products(group, block)?)?;
        let scores = scores(group, block, &scaled)?;
        let scores = block.where_seen(&scores, f32::NEG_INFINITY)?;
        let max = self.max.maximum(&scores.max_keepdim(1)?)?;
        // The maximum may lose a NaN, but the sum keeps it.
        let kept = self.max.sub(&max)?.to_dtype(DType::F64)?.exp()?;
        let added = scores.broadcast_sub(&max)?.exp()?.sum_keepdim(1)?;
        self.sum = self.sum.mul(&kept)?.add(&added.to_dtype(DType::F64)?)?;
        self.max = max;
        Ok(())
    }

    /// One value per key; −inf for a key that no query sees. // [head, 1, key]
    pub fn log_sum_exp(&self) -> Result<Tensor> {
        let log = self.sum.log()?.add(&self.max.to_dtype(DType::F64)?)?;
        log.to_dtype(DType::F32)
    }
}
