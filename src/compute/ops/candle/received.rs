//! What keys receive from the rows of a block: the sum of their probabilities, and the largest ones of each cell of the pooled map.

use candle_core::{DType, Result, Tensor};

use super::scores::Block;
use crate::attention::Pooled;

/// Of one block and all heads of a group. A band is the rows of a block that belong to one row of cells.
pub(super) struct Received {
    /// In f64. // [head, key]
    pub column_sums: Tensor,
    /// [band, head, cell]
    pub cells: Tensor,
}

impl Received {
    /// Counts the queries that `is_real` names. // pattern: [head, row, key]
    pub fn of(
        block: &Block,
        pattern: &Tensor,
        is_real: &dyn Fn(usize) -> bool,
        like: &Pooled,
    ) -> Result<Self> {
        let real: Vec<u8> = block
            .queries
            .clone()
            .map(|q| u8::from(is_real(q)))
            .collect();
        let real = real.contains(&0).then_some(real);
        let starts = band_starts(block, like);
        #[cfg(feature = "cuda")]
        if let Some(done) = super::fused::received(pattern, real.as_deref(), like, &starts)? {
            return Ok(done);
        }
        let counted = match &real {
            None => pattern.clone(),
            Some(real) => {
                let real = Tensor::from_slice(real, (1, block.n_rows(), 1), pattern.device())?;
                // Uses a comparison, since 0 times NaN is NaN.
                let real = real.broadcast_as(pattern.shape())?;
                real.where_cond(pattern, &pattern.zeros_like()?)?
            }
        };
        Ok(Self {
            column_sums: counted.sum(1)?.to_dtype(DType::F64)?,
            cells: cells(&counted, like, &starts)?,
        })
    }
}

/// The rows of a block at which bands begin, and its number of rows.
fn band_starts(block: &Block, like: &Pooled) -> Vec<u32> {
    let per_row = like.queries_per_cell;
    let first = block.queries.start;
    let next = (first / per_row + 1) * per_row;
    let later = (next..block.queries.end).step_by(per_row);
    let rows = std::iter::once(first)
        .chain(later)
        .chain([block.queries.end]);
    rows.map(|query_idx| (query_idx - first) as u32).collect()
}

/// Takes the maximum of every tile. // pattern: [head, row, key] → [band, head, cell]
fn cells(pattern: &Tensor, like: &Pooled, starts: &[u32]) -> Result<Tensor> {
    let (n_heads, n_rows, n_keys) = pattern.dims3()?;
    let (n_cols, per_col) = (like.n_cols, like.keys_per_cell);
    let tiles = match per_col {
        1 => pattern.clone(),
        _ => pattern
            .pad_with_zeros(2, 0, n_cols * per_col - n_keys)?
            .contiguous()?
            .reshape((n_heads, n_rows, n_cols, per_col))?
            .max(3)?,
    }; // [head, row, cell]
    let band = |ends: &[u32]| {
        let [start, end] = [ends[0] as usize, ends[1] as usize];
        tiles.narrow(1, start, end - start)?.contiguous()?.max(1) // [head, cell]
    };
    let bands: Vec<Tensor> = starts.windows(2).map(band).collect::<Result<_>>()?;
    Tensor::stack(&bands, 0)
}
