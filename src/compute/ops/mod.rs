//! The small interface a forward pass is written against, and its implementations.
//!
//! Activations live in buffers the caller owns and reuses; weights arrive from the host one layer at a time.

mod candle;
mod compute;
mod cpu;
mod spare;

use std::borrow::Cow;
use std::sync::OnceLock;

pub use candle::{Affine, Candle, NormWeights, OnCandle};
pub use compute::{Compute, Device};
pub use cpu::{Cpu, Values};
pub use spare::{Lent, LentBits, Reuse, lend, lend_bits, reuse_buffers};

use crate::attention::{HeadSummary, RopeTable, Run};
use crate::error::Result;
pub use crate::kernels::Activation;
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
    /// The products of each head's columns with each other, which the lengths of what heads add are computed from: made for the first
    /// prompt that passes the layer, and kept for the others. // [head, d_value, d_value]
    pub grams: OnceLock<Vec<f32>>,
}

/// The numbers of a matrix.
#[derive(Debug)]
pub enum HostWeight<'a> {
    F32(Cow<'a, [f32]>),
    /// Widened into a buffer that the next layer takes over.
    Lent(Lent),
    /// The bits of bf16 numbers, as they lie in the file: for those who say that they take them ([`Ops::takes_bf16`]).
    Bf16(LentBits),
    /// Laid out for products with a few rows at a time.
    FewRows(FewRows),
}

impl HostLinear<'_> {
    /// The weights as f32, in their order.
    pub fn widened(&self) -> Cow<'_, [f32]> {
        match &self.weight {
            HostWeight::F32(values) => Cow::Borrowed(values),
            HostWeight::Lent(values) => Cow::Borrowed(values),
            HostWeight::Bf16(bits) => kernels::widen_bf16(bits).into(),
            HostWeight::FewRows(laid_out) => laid_out.values(self.is_input_major).into(),
        }
    }
}

/// What a norm divides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Mean removed, divided by the standard deviation.
    LayerNorm,
    /// Divided by the root mean square.
    RmsNorm,
}

/// A norm as read from a checkpoint.
#[derive(Debug, Clone)]
pub struct HostNorm<'a> {
    pub kind: NormKind,
    pub eps: f32,
    pub gain: Option<Cow<'a, [f32]>>,
    pub bias: Option<Cow<'a, [f32]>>,
}

/// A buffer as the host sees it.
#[derive(Debug)]
pub struct OnHost<'b> {
    pub width: usize,
    /// [row, width]
    pub values: Cow<'b, [f32]>,
}

/// One step of arithmetic a line; every method writes a buffer that the caller owns.
///
/// A buffer is a matrix of f32, one row per position. Errors are the device's: shapes are the caller's business.
pub trait Ops: Sync {
    type Buffer: Default + Send + Sync;
    type Linear<'a>: Send + Sync;
    type Norm<'a>: Send + Sync;

    /// Whether bf16 weights may come as they are stored, instead of widened.
    fn takes_bf16(&self) -> bool {
        false
    }

    /// Whether a sink is made ready for heads before their blocks come.
    fn readies_sinks(&self) -> bool {
        false
    }

    /// Brings weights to where they are used.
    fn linear_weights<'a>(&self, host: HostLinear<'a>) -> Result<Self::Linear<'a>>;
    fn norm_weights<'a>(&self, host: HostNorm<'a>) -> Result<Self::Norm<'a>>;

    /// Lays weights out for products with a few rows at a time, of which there will be many; rows come out as the same bits.
    fn for_few_rows<'a>(&self, host: HostLinear<'a>) -> HostLinear<'a> {
        host
    }

    /// Puts rows behind those of another buffer, which may be empty.
    fn append(&self, to: &mut Self::Buffer, from: &Self::Buffer) -> Result<()> {
        let new = self.get(from)?;
        let mut all = self.get(to)?.values.into_owned();
        all.extend_from_slice(&new.values);
        self.put(&all, new.width, to)
    }

    /// Host → buffer. // values: [row, width]
    fn put(&self, values: &[f32], width: usize, to: &mut Self::Buffer) -> Result<()>;
    /// Host → buffer, without a copy where buffers are of the host. // values: [row, width]
    fn put_own(&self, values: Vec<f32>, width: usize, to: &mut Self::Buffer) -> Result<()> {
        self.put(&values, width, to)
    }
    /// Buffer → host. // [row, width]
    fn get<'b>(&self, from: &'b Self::Buffer) -> Result<OnHost<'b>>;
    fn copy(&self, from: &Self::Buffer, to: &mut Self::Buffer) -> Result<()>;

    /// to = W·from + b; [`Error::Cancelled`](crate::error::Error::Cancelled) when it was stopped. // [row, n_in] → [row, n_out]
    fn linear(
        &self,
        from: &Self::Buffer,
        weights: &Self::Linear<'_>,
        to: &mut Self::Buffer,
        pace: &dyn Pace,
    ) -> Result<()>;
    /// Each row normalised.
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
    /// Every value brought between −limit and limit; NaN goes through.
    fn clip(&self, values: &mut Self::Buffer, limit: f32) -> Result<()>;
    /// up = (clamp(up) + 1) · gate·sigmoid(α·gate), both clamped to the limit.
    fn clamped_gate(
        &self,
        up: &mut Self::Buffer,
        gate: &Self::Buffer,
        limit: f32,
        alpha: f32,
    ) -> Result<()>;
    /// Every `width` values of each row normalised; a gain longer than that is for heads in turn.
    fn norm_heads(
        &self,
        values: &mut Self::Buffer,
        weights: &Self::Norm<'_>,
        width: usize,
    ) -> Result<()>;
    /// Of each head, its own values, then those that all heads share. // [row, n_heads · (own + shared)]
    fn join_heads(
        &self,
        own: &Self::Buffer,
        shared: &Self::Buffer,
        n_heads: usize,
        to: &mut Self::Buffer,
    ) -> Result<()>;
    /// Some rows of a buffer, in the order given.
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
    /// Gives one summary per head of `run.heads`, in order.
    fn attend(
        &self,
        run: &Run<'_>,
        q: &Self::Buffer,
        k: &Self::Buffer,
        v: &Self::Buffer,
        z: &mut Self::Buffer,
    ) -> Result<Vec<HeadSummary>>;

    /// ‖W_O^h x^h‖ of every head and row: what each head alone adds of its columns x^h, before norms. Heads in a row may share
    /// their columns, as they share values. // rows: [position, n_column_heads · d_value] → [head, position]
    fn head_output_norms(
        &self,
        rows: (&Self::Buffer, usize),
        output: &Self::Linear<'_>,
        n_heads: usize,
        pace: &dyn Pace,
    ) -> Result<Vec<Vec<f32>>>;
}
