//! Computation on a GPU through candle: activations stay on the device between steps, and row summaries are copied back.
//!
//! It also runs on candle's own CPU device, which is used for tests without a GPU.

mod attend;
mod buffer;
mod columns;
mod definition;
mod elementwise;
mod figures;
mod finished;
#[cfg(feature = "cuda")]
mod fused;
mod group;
mod input;
mod maps;
mod received;
mod rows;
mod scores;

use candle_core::{DType, Tensor};

use self::buffer::host;
pub use self::buffer::{Affine, NormWeights, OnCandle};
use super::{Activation, HostLinear, HostNorm, OnHost, Ops};
use crate::attention::{HeadInput, HeadSummary, RopeTable, Run, stream_heads};
use crate::error::{Error, Result};
use crate::kernels::simd::Level;
use crate::pace::Pace;

/// Number of values in one row block of all heads that run together: 64 MiB per tensor of that size, of which about a dozen exist
/// at once.
const BLOCK_VALUES: usize = 16 << 20;
/// On the CPU, a block should stay in the cache.
const BLOCK_VALUES_CPU: usize = 1 << 18;

/// A device of candle.
#[derive(Debug, Clone)]
pub struct Candle {
    device: candle_core::Device,
    /// Largest number of values in a row block.
    block_values: usize,
}

impl Candle {
    /// candle's own CPU device: the same arithmetic as on a GPU, slower than [`super::Cpu`].
    pub fn cpu() -> Self {
        Self {
            device: candle_core::Device::Cpu,
            block_values: BLOCK_VALUES_CPU,
        }
    }

    /// A CUDA device. Tensors belong to the thread that created them, so every thread opens the device itself.
    ///
    /// # Errors
    /// When there is no such device, or a CUDA library is missing.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        let device = candle_core::Device::new_cuda(ordinal)?;
        // Keeps the full precision of f32 for scores.
        candle_core::cuda::set_gemm_reduced_precision_f32(false);
        Ok(Self {
            device,
            block_values: BLOCK_VALUES,
        })
    }

    /// The device with row blocks of at most this many values: for tests.
    #[must_use]
    pub fn with_block_values(self, block_values: usize) -> Self {
        Self {
            block_values,
            ..self
        }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        // With RUST_BACKTRACE set, a backtrace follows the first line.
        let text = error.to_string();
        Self::Device(text.lines().next().unwrap_or("unknown").trim().to_owned())
    }
}

/// Work queued on a GPU cannot be cancelled, so this checks for a stop before each large step.
fn go_on(pace: &dyn Pace) -> Result<()> {
    if pace.stops() {
        Err(Error::Cancelled)
    } else {
        Ok(())
    }
}

impl Ops for Candle {
    type Buffer = OnCandle;
    type Linear<'a> = Affine;
    type Norm<'a> = NormWeights;

    fn takes_bf16(&self) -> bool {
        self.device.is_cuda()
    }

    fn linear_weights<'a>(&self, weights: HostLinear<'a>) -> Result<Affine> {
        Affine::new(&weights, &self.device)
    }

    fn norm_weights<'a>(&self, weights: HostNorm<'a>) -> Result<NormWeights> {
        NormWeights::new(&weights, &self.device)
    }

    fn put(&self, values: &[f32], width: usize, to: &mut OnCandle) -> Result<()> {
        let n_rows = values.len().checked_div(width).unwrap_or(0);
        to.set(Tensor::from_slice(values, (n_rows, width), &self.device)?);
        Ok(())
    }

    fn get<'b>(&self, from: &'b OnCandle) -> Result<OnHost<'b>> {
        let values = from.tensor()?;
        Ok(OnHost {
            width: values.dim(1)?,
            values: host(values)?.into(),
        })
    }

    fn is_finite(&self, values: &OnCandle) -> Result<bool> {
        let values = values.tensor()?;
        // x − x is 0, and NaN for a NaN and for an infinity.
        let sum: f32 = values.sub(values)?.sum_all()?.to_scalar()?;
        Ok(sum == 0.0)
    }

    fn row_norms(&self, values: &OnCandle) -> Result<Vec<f32>> {
        // Summed in f64, as everywhere.
        let squares = values.tensor()?.to_dtype(DType::F64)?.sqr()?;
        Ok(squares.sum(1)?.sqrt()?.to_dtype(DType::F32)?.to_vec1()?)
    }

    fn copy(&self, from: &OnCandle, to: &mut OnCandle) -> Result<()> {
        // Tensors are never modified, so two buffers may share one.
        to.clone_from(from);
        Ok(())
    }

    fn linear(
        &self,
        from: &OnCandle,
        weights: &Affine,
        to: &mut OnCandle,
        pace: &dyn Pace,
    ) -> Result<()> {
        go_on(pace)?;
        let from = from.tensor()?;
        to.set(weights.of(from)?);
        pace.did((from.elem_count() * weights.n_out()?) as u64);
        Ok(())
    }

    fn norm(&self, from: &OnCandle, weights: &NormWeights, to: &mut OnCandle) -> Result<()> {
        to.set(weights.of(from.tensor()?)?);
        Ok(())
    }

    fn activate(&self, activation: Activation, values: &mut OnCandle) -> Result<()> {
        values.set(elementwise::activate(activation, values.tensor()?)?);
        Ok(())
    }

    fn add(&self, to: &mut OnCandle, from: &OnCandle) -> Result<()> {
        to.set(to.tensor()?.add(from.tensor()?)?);
        Ok(())
    }

    fn multiply(&self, to: &mut OnCandle, from: &OnCandle) -> Result<()> {
        to.set(to.tensor()?.mul(from.tensor()?)?);
        Ok(())
    }

    fn scale(&self, values: &mut OnCandle, factor: f32) -> Result<()> {
        values.set(values.tensor()?.affine(f64::from(factor), 0.0)?);
        Ok(())
    }

    fn clip(&self, values: &mut OnCandle, limit: f32) -> Result<()> {
        values.set(elementwise::clip(values.tensor()?, limit)?);
        Ok(())
    }

    fn lower(&self, values: &mut OnCandle, limit: f32) -> Result<()> {
        values.set(elementwise::at_most(values.tensor()?, limit)?);
        Ok(())
    }

    fn clamped_gate(
        &self,
        up: &mut OnCandle,
        gate: &OnCandle,
        limit: f32,
        alpha: f32,
    ) -> Result<()> {
        let gated = elementwise::clamped_gate(up.tensor()?, gate.tensor()?, limit, alpha)?;
        up.set(gated);
        Ok(())
    }

    fn norm_heads(&self, values: &mut OnCandle, weights: &NormWeights, width: usize) -> Result<()> {
        let (n_rows, row_width) = values.tensor()?.dims2()?;
        let heads = values
            .tensor()?
            .reshape((n_rows * (row_width / width), width))?;
        values.set(weights.of(&heads)?.reshape((n_rows, row_width))?);
        Ok(())
    }

    fn join_heads(
        &self,
        own: &OnCandle,
        shared: &OnCandle,
        n_heads: usize,
        to: &mut OnCandle,
    ) -> Result<()> {
        let (n_rows, width) = own.tensor()?.dims2()?;
        let n_shared = shared.tensor()?.dim(1)?;
        let own = own.tensor()?.reshape((n_rows, n_heads, width / n_heads))?;
        let shared = shared.tensor()?.reshape((n_rows, 1, n_shared))?;
        let shared = shared.broadcast_as((n_rows, n_heads, n_shared))?;
        let joined = Tensor::cat(&[&own, &shared], 2)?; // [position, head, own + shared]
        to.set(joined.reshape((n_rows, width + n_heads * n_shared))?);
        Ok(())
    }

    fn gather_rows(&self, from: &OnCandle, rows: &[usize], to: &mut OnCandle) -> Result<()> {
        to.set(from.tensor()?.index_select(&self.indices(rows)?, 0)?);
        Ok(())
    }

    fn add_rows(
        &self,
        to: &mut OnCandle,
        rows: &[usize],
        factors: &[f32],
        from: &OnCandle,
    ) -> Result<()> {
        let factors = Tensor::from_slice(factors, (factors.len(), 1), &self.device)?;
        let added = from.tensor()?.broadcast_mul(&factors)?;
        to.set(to.tensor()?.index_add(&self.indices(rows)?, &added, 0)?);
        Ok(())
    }

    fn rope(&self, values: &mut OnCandle, table: &RopeTable, d_head: usize) -> Result<()> {
        values.set(elementwise::rope(values.tensor()?, table, d_head)?);
        Ok(())
    }

    fn attend(
        &self,
        run: &Run<'_>,
        q: &OnCandle,
        k: &OnCandle,
        v: &OnCandle,
        z: &mut OnCandle,
    ) -> Result<Vec<HeadSummary>> {
        // For one or two rows, the device gains less than repacking costs. Global tokens have keys of their own and are computed
        // row by row. The largest scores of a row are found on the host, and so is what it sees besides its keys.
        let has_globals = run.globals.is_some() || run.spec.globals.is_some();
        let is_on_host = has_globals || run.spec.top_keys.is_some() || run.beside.is_some();
        if run.visibility.first_query() > 0 || is_on_host {
            let (q, k, v) = (self.get(q)?, self.get(k)?, self.get(v)?);
            let input = HeadInput {
                q: &q.values,
                k: &k.values,
                v: &v.values,
            };
            let width = run.spec.n_heads * run.spec.d_value;
            let mut rows = vec![0.0; run.visibility.n_queries_to_run() * width];
            let ran = stream_heads(run, input, Level::current(), &mut rows);
            self.put(&rows, width, z)?;
            return ran.ok_or(Error::Cancelled);
        }
        let input = input::Input {
            q: q.tensor()?,
            k: k.tensor()?,
            v: v.tensor()?,
        };
        let (summaries, out) = attend::attend(run, input, self.block_values)?;
        z.set(out);
        Ok(summaries)
    }

    fn head_output_norms(
        &self,
        (rows, n_column_heads): (&OnCandle, usize),
        output: &Affine,
        n_heads: usize,
        pace: &dyn Pace,
    ) -> Result<Vec<Vec<f32>>> {
        go_on(pace)?;
        let rows = rows.tensor()?;
        let (n_rows, width) = rows.dims2()?;
        let d_value = width / n_column_heads;
        // ‖W x‖² = xᵀ (WᵀW) x: a small product per head instead of a full-width output.
        let weight = output.by_heads(n_heads)?; // [head, d_value, n_out]
        let gram = weight.matmul(&weight.transpose(1, 2)?)?; // [head, d_value, d_value]
        let rows = rows.reshape((n_rows, n_column_heads, 1, d_value))?;
        let rows =
            rows.broadcast_as((n_rows, n_column_heads, n_heads / n_column_heads, d_value))?;
        let rows = rows.reshape((n_rows, n_heads, d_value))?;
        let rows = rows.transpose(0, 1)?.contiguous()?; // [head, position, d_value]
        let squared = rows
            .matmul(&gram)?
            .mul(&rows)?
            .to_dtype(DType::F64)?
            .sum(2)?; // [head, position]
        let squared: Vec<Vec<f64>> = squared.to_vec2()?;
        // Rounding may give a tiny negative value where the norm is 0; NaN propagates.
        let norm = |s: f64| if s < 0.0 { 0.0 } else { s.sqrt() as f32 };
        let of_head = |row: Vec<f64>| row.into_iter().map(norm).collect();
        Ok(squared.into_iter().map(of_head).collect())
    }
}

impl Candle {
    fn indices(&self, rows: &[usize]) -> Result<Tensor> {
        let rows: Vec<u32> = rows.iter().map(|row_idx| *row_idx as u32).collect();
        let n = rows.len();
        Ok(Tensor::from_vec(rows, n, &self.device)?)
    }
}
