//! Row blocks by kernels of our own on a CUDA device: one pass for what `rows` and `maps` do one tensor operation at a time.
//!
//! Where the kernels cannot be compiled or loaded, the tensor operations do the work: same results, slower.

mod launch;
mod parameters;

use candle_core::cuda_backend::cudarc::driver::PushKernelArg;
use candle_core::{DType, Result, Tensor};

use self::launch::{Kernels, launch};
use self::parameters::{Rows, pointer};
use super::group::Group;
use super::maps::Copies;
use super::received::Received;
use super::scores::Block;
use crate::attention::{Pooled, SoftmaxAxis};

/// Rows of threads in a block; each row is a warp.
const N_WARPS: u32 = 8;
const WARP: u32 = 32;
const BLOCK: (u32, u32, u32) = (WARP, N_WARPS, 1);

/// What `rows::figures` returns. // [head, row, key] twice, [head · row, figure]
pub(super) struct FusedRows {
    /// Masked scores; `None` if nobody asked for them.
    pub scores: Option<Tensor>,
    pub pattern: Tensor,
    pub figures: Tensor,
}

/// Scores, pattern and figures of a block from q·k; `None` where the device has no kernels.
pub(super) fn rows(
    group: &Group<'_>,
    block: &Block,
    products: &Tensor,
    columns: Option<&Tensor>,
    copies: Option<&Copies>,
) -> Result<Option<FusedRows>> {
    // The kernel subtracts what all rows of a head share.
    let over_heads = group.run.spec.softmax_axis == SoftmaxAxis::Heads;
    let kernels = Kernels::of(products.device());
    let Some(kernels) = kernels.filter(|_| !over_heads) else {
        return Ok(None);
    };
    let n_all_rows = group.n_heads() * block.n_rows();
    let keeps_scores = group.run.sink.is_some();
    // Written by the kernel before anything reads them.
    let new = |n: usize| kernels.uninitialised(n);
    let pattern = new(products.elem_count())?;
    let scores = keeps_scores
        .then(|| new(products.elem_count()))
        .transpose()?;
    let figures = new(super::figures::COUNT * n_all_rows)?;
    let prepared = Rows::prepare(group, block, products, columns, copies)?;
    let parameters = prepared.with_outputs(
        pointer(&pattern)?,
        scores.as_ref().map_or(Ok(0), pointer)?,
        pointer(&figures)?,
    );
    let n_blocks = (n_all_rows as u32).div_ceil(N_WARPS);
    let (stream, kernel) = (kernels.stream(), kernels.kernel("rows")?);
    let mut call = stream.launch_builder(&kernel);
    call.arg(&parameters);
    launch(call, (n_blocks, 1, 1), BLOCK)?;
    let like = products.shape();
    Ok(Some(FusedRows {
        scores: scores.map(|scores| scores.reshape(like)).transpose()?,
        pattern: pattern.reshape(like)?,
        figures,
    }))
}

/// Sums and cells of a block; `None` where the device has no kernels. `band_starts` are rows of the block, with its end.
pub(super) fn received(
    pattern: &Tensor,
    real: Option<&[u8]>,
    like: &Pooled,
    band_starts: &[u32],
) -> Result<Option<Received>> {
    let Some(kernels) = Kernels::of(pattern.device()) else {
        return Ok(None);
    };
    let (n_heads, n_rows, n_keys) = pattern.dims3()?;
    let device = pattern.device();
    let real = match real {
        Some(real) => Some(Tensor::from_slice(real, n_rows, device)?),
        None => None,
    };
    let real = real.as_ref().map_or(Ok(0), pointer)?;
    let of = pointer(pattern)?;
    let [heads, rows, keys] = [n_heads, n_rows, n_keys].map(|n| n as u32);

    let column_sums = Tensor::zeros((n_heads, n_keys), DType::F64, device)?;
    let sums = pointer(&column_sums)?;
    let (stream, kernel) = (kernels.stream(), kernels.kernel("column_sums")?);
    let mut call = stream.launch_builder(&kernel);
    call.arg(&of).arg(&real).arg(&sums).arg(&rows).arg(&keys);
    launch(call, (keys.div_ceil(WARP), heads, 1), BLOCK)?;

    let n_bands = band_starts.len() - 1;
    let cells = kernels.uninitialised(n_bands * n_heads * like.n_cols)?;
    let starts = Tensor::from_slice(band_starts, band_starts.len(), device)?;
    let (starts, found) = (pointer(&starts)?, pointer(&cells)?);
    let [n_cells, per_cell] = [like.n_cols, like.keys_per_cell].map(|n| n as u32);
    let kernel = kernels.kernel("cells")?;
    let mut call = stream.launch_builder(&kernel);
    call.arg(&of).arg(&real).arg(&starts).arg(&found);
    call.arg(&rows)
        .arg(&keys)
        .arg(&heads)
        .arg(&n_cells)
        .arg(&per_cell);
    launch(
        call,
        (n_cells.div_ceil(N_WARPS), n_bands as u32, heads),
        BLOCK,
    )?;
    Ok(Some(Received {
        column_sums,
        cells: cells.reshape((n_bands, n_heads, like.n_cols))?,
    }))
}
