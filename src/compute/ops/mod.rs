//! The interface that a forward pass is written against, and its implementations.
//!
//! Activations are in buffers that the caller owns and reuses; weights arrive from the host one layer at a time.

mod candle;
mod compute;
mod cpu;
mod later;
mod spare;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

pub use candle::{Affine, Candle, NormWeights, OnCandle};
pub use compute::{Compute, Device};
pub use cpu::{Cpu, CpuLinear, Values};
pub use later::Later;
pub use spare::{Lent, LentBits, Reuse, lend, lend_bits, reuse_buffers};

use crate::attention::{HeadSummary, RopeTable, Run};
use crate::error::Result;
pub use crate::kernels::Activation;
use crate::kernels::vectors::columns;
use crate::kernels::{self, FewRows};
use crate::pace::Pace;

/// An affine map as read from a checkpoint: y = W·x + b.
#[derive(Debug)]
pub struct HostLinear<'a> {
    pub n_out: usize,
    pub n_in: usize,
    /// [n_out, n_in], or [n_in, n_out] when `is_input_major`.
    pub weight: HostWeight<'a>,
    pub is_input_major: bool,
    pub bias: Option<Cow<'a, [f32]>>,
    /// Gram matrix of each head's columns, used to compute the lengths of the heads' outputs. Computed for the first prompt that
    /// runs through the layer, and kept for later ones. // [head, d_value, d_value]
    pub grams: OnceLock<Vec<f32>>,
}

/// The values of a weight matrix.
#[derive(Debug)]
pub enum HostWeight<'a> {
    F32(Cow<'a, [f32]>),
    /// Widened into a buffer that the next layer reuses.
    Lent(Lent),
    /// Some columns of a matrix that several maps share; input-major.
    Columns {
        whole: Arc<Lent>,
        /// Number of columns of the whole matrix.
        width: usize,
        first: usize,
    },
    /// The bits of bf16 numbers as stored in the file, for devices that accept them ([`Ops::takes_bf16`]).
    Bf16(LentBits),
    /// Repacked for products with a few rows at a time.
    FewRows(FewRows),
}

impl HostWeight<'_> {
    /// The weights of `n_out` outputs as f32, in their stored order.
    pub fn widened(&self, n_out: usize, is_input_major: bool) -> Cow<'_, [f32]> {
        match self {
            HostWeight::F32(values) => Cow::Borrowed(values),
            HostWeight::Lent(values) => Cow::Borrowed(values),
            HostWeight::Columns {
                whole,
                width,
                first,
            } => columns(whole, *width, *first, n_out).into(),
            HostWeight::Bf16(bits) => kernels::widen_bf16(bits).into(),
            HostWeight::FewRows(laid_out) => laid_out.values(is_input_major).into(),
        }
    }
}

impl HostLinear<'_> {
    /// The weights as f32, in their stored order.
    pub fn widened(&self) -> Cow<'_, [f32]> {
        self.weight.widened(self.n_out, self.is_input_major)
    }
}

/// The statistic that a norm divides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Subtracts the mean and divides by the standard deviation.
    LayerNorm,
    /// Divides by the root mean square.
    RmsNorm,
    /// Neither: gain and bias hold what statistics of training made of each value (batch norm).
    Fixed,
    /// Neither: the tanh of each value times a number, before gain and bias (dynamic tanh; Zhu et al. 2025, arXiv 2503.10622).
    Tanh,
}

/// A norm as read from a checkpoint.
#[derive(Debug, Clone)]
pub struct HostNorm<'a> {
    pub kind: NormKind,
    pub eps: f32,
    /// What values are multiplied by before the tanh of [`NormKind::Tanh`].
    pub alpha: f32,
    pub gain: Option<Cow<'a, [f32]>>,
    pub bias: Option<Cow<'a, [f32]>>,
}

/// Contents of a buffer on the host.
#[derive(Debug)]
pub struct OnHost<'b> {
    pub width: usize,
    /// [row, width]
    pub values: Cow<'b, [f32]>,
}

/// The arithmetic of a device, one step per method; every method writes to a buffer that the caller owns.
///
/// A buffer is a matrix of f32 with one row per position. Errors come from the device: the caller is responsible for shapes.
pub trait Ops: Sync {
    type Buffer: Default + Send + Sync;
    type Linear<'a>: Send + Sync;
    type Norm<'a>: Send + Sync;

    /// Whether bf16 weights may be passed as stored, instead of widened.
    fn takes_bf16(&self) -> bool {
        false
    }

    /// Whether bf16 weights are multiplied as a whole matrix at best, instead of a part at a time.
    fn takes_bf16_whole(&self) -> bool {
        self.takes_bf16()
    }

    /// Moves weights to the device.
    fn linear_weights<'a>(&self, host: HostLinear<'a>) -> Result<Self::Linear<'a>>;
    fn norm_weights<'a>(&self, host: HostNorm<'a>) -> Result<Self::Norm<'a>>;

    /// Takes weights that are multiplied once; a device may read them when they are.
    fn linear_later<'a>(&self, later: Later<'a>) -> Result<Self::Linear<'a>> {
        self.linear_weights(later.whole()?)
    }

    /// Repacks weights for many products with a few rows at a time; results stay bit-identical.
    fn for_few_rows<'a>(&self, host: HostLinear<'a>) -> HostLinear<'a> {
        host
    }

    /// Appends rows to a buffer, which may be empty.
    fn append(&self, to: &mut Self::Buffer, from: &Self::Buffer) -> Result<()> {
        let new = self.get(from)?;
        let mut all = self.get(to)?.values.into_owned();
        all.extend_from_slice(&new.values);
        self.put(&all, new.width, to)
    }

    /// Host → buffer. // values: [row, width]
    fn put(&self, values: &[f32], width: usize, to: &mut Self::Buffer) -> Result<()>;
    /// Host → buffer, without a copy if buffers are on the host. // values: [row, width]
    fn put_own(&self, values: Vec<f32>, width: usize, to: &mut Self::Buffer) -> Result<()> {
        self.put(&values, width, to)
    }
    /// Buffer → host. // [row, width]
    fn get<'b>(&self, from: &'b Self::Buffer) -> Result<OnHost<'b>>;
    /// Whether a buffer holds neither a NaN nor an infinity.
    fn is_finite(&self, values: &Self::Buffer) -> Result<bool> {
        Ok(kernels::first_nonfinite(&self.get(values)?.values).is_none())
    }
    /// The Euclidean length of each row. // [row]
    fn row_norms(&self, values: &Self::Buffer) -> Result<Vec<f32>> {
        let host = self.get(values)?;
        Ok(kernels::norms_of_rows(&host.values, host.width))
    }
    fn copy(&self, from: &Self::Buffer, to: &mut Self::Buffer) -> Result<()>;

    /// to = W·from + b; returns [`Error::Cancelled`](crate::error::Error::Cancelled) if stopped. // [row, n_in] → [row, n_out]
    fn linear(
        &self,
        from: &Self::Buffer,
        weights: &Self::Linear<'_>,
        to: &mut Self::Buffer,
        pace: &dyn Pace,
    ) -> Result<()>;
    /// Normalises each row.
    fn norm(
        &self,
        from: &Self::Buffer,
        weights: &Self::Norm<'_>,
        to: &mut Self::Buffer,
    ) -> Result<()>;
    fn activate(&self, activation: Activation, values: &mut Self::Buffer) -> Result<()>;
    fn add(&self, to: &mut Self::Buffer, from: &Self::Buffer) -> Result<()>;
    fn multiply(&self, to: &mut Self::Buffer, from: &Self::Buffer) -> Result<()>;
    fn scale(&self, values: &mut Self::Buffer, factor: f32) -> Result<()>;
    /// Clamps every value to ±limit; NaN propagates.
    fn clip(&self, values: &mut Self::Buffer, limit: f32) -> Result<()>;
    /// Lowers every value above the limit to it; NaN propagates.
    fn lower(&self, values: &mut Self::Buffer, limit: f32) -> Result<()>;
    /// up = (clamp(up) + 1) · gate·sigmoid(α·gate), both clamped to the limit.
    fn clamped_gate(
        &self,
        up: &mut Self::Buffer,
        gate: &Self::Buffer,
        limit: f32,
        alpha: f32,
    ) -> Result<()>;
    /// Normalises every `width` values of each row; a longer gain applies to heads in turn.
    fn norm_heads(
        &self,
        values: &mut Self::Buffer,
        weights: &Self::Norm<'_>,
        width: usize,
    ) -> Result<()>;
    /// For each head, its own values followed by those shared by all heads. // [row, n_heads · (own + shared)]
    fn join_heads(
        &self,
        own: &Self::Buffer,
        shared: &Self::Buffer,
        n_heads: usize,
        to: &mut Self::Buffer,
    ) -> Result<()>;
    /// Copies some rows of a buffer, in the given order.
    fn gather_rows(&self, from: &Self::Buffer, rows: &[usize], to: &mut Self::Buffer)
    -> Result<()>;
    /// to[rows[i]] += factors[i] · from[i].
    fn add_rows(
        &self,
        to: &mut Self::Buffer,
        rows: &[usize],
        factors: &[f32],
        from: &Self::Buffer,
    ) -> Result<()>;
    /// Rotates every head of every row. // [position, n_heads · d_head]
    fn rope(&self, values: &mut Self::Buffer, table: &RopeTable, d_head: usize) -> Result<()>;

    /// Runs one attention in row blocks; `z` receives Σ p·v of all heads. // [query, n_heads · d_value]
    ///
    /// Returns one summary per head of `run.heads`, in order.
    fn attend(
        &self,
        run: &Run<'_>,
        q: &Self::Buffer,
        k: &Self::Buffer,
        v: &Self::Buffer,
        z: &mut Self::Buffer,
    ) -> Result<Vec<HeadSummary>>;

    /// ‖W_O^h x^h‖ of every head and row: the length that each head adds from its columns x^h, before norms. Consecutive heads
    /// may share columns, as they share values. // rows: [position, n_column_heads · d_value] → [head, position]
    fn head_output_norms(
        &self,
        rows: (&Self::Buffer, usize),
        output: &Self::Linear<'_>,
        n_heads: usize,
        pace: &dyn Pace,
    ) -> Result<Vec<Vec<f32>>>;
}
