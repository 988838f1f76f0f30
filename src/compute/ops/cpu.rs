//! The CPU: kernels on slices, parallel over rows and heads.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Activation, HostLinear, HostNorm, HostWeight, Later, NormKind, OnHost, Ops};
use crate::attention::{HeadInput, HeadSummary, RopeTable, Run, stream_heads};
use crate::error::{Error, Result};
use crate::kernels::amx::{self, Bf16Matrix};
use crate::kernels::simd::Level;
use crate::kernels::{
    self, FewRows, Matrix, MatrixMut, Onto, Stored, Threads, few_rows, product_onto,
};
use crate::pace::Pace;

/// With at most this many rows, reading weights takes as long as multiplying them.
const FEW_ROWS: usize = 64;
/// Weights that a thread reads before they are multiplied: few enough to be still in its caches.
const READ_AT_ONCE: usize = 1 << 19;

/// The CPU as a device. Weights are used where the reader stored them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

/// An affine map on the CPU.
#[derive(Debug)]
pub enum CpuLinear<'a> {
    Read(HostLinear<'a>),
    Later(Later<'a>),
}

/// A matrix of activations whose memory is reused.
#[derive(Debug, Clone, Default)]
pub struct Values {
    pub width: usize,
    /// [row, width]
    pub data: Vec<f32>,
}

impl Values {
    fn n_rows(&self) -> usize {
        self.data.len().checked_div(self.width).unwrap_or(0)
    }

    fn reshape(&mut self, n_rows: usize, width: usize) {
        self.width = width;
        self.data.resize(n_rows * width, 0.0);
    }
}

/// The weights of a map as a matrix. // [n_in, n_out]
fn matrix_of<'w, T>(weights: &HostLinear<'_>, values: &'w [T]) -> Matrix<'w, T> {
    let (rows, columns) = if weights.is_input_major {
        (weights.n_in, weights.n_out)
    } else {
        (weights.n_out, weights.n_in)
    };
    let stored = match &weights.weight {
        HostWeight::Columns { width, first, .. } => {
            Matrix::new(&values[*first..], rows, columns, *width, 1)
        }
        _ => Matrix::row_major(values, rows, columns),
    };
    if weights.is_input_major {
        stored
    } else {
        stored.transposed()
    }
}

/// to = W·from + b, in the columns of `to` from `first` on, with weights as they are stored.
fn product_of<T: Stored>(
    from: &Values,
    weight: &[T],
    weights: &HostLinear<'_>,
    (first, to): (usize, &mut Values),
    pace: &dyn Pace,
) -> Result<()> {
    let n_rows = from.n_rows();
    let left = Matrix::row_major(&from.data, n_rows, weights.n_in); // [row, n_in]
    let right = matrix_of(weights, weight);
    let out = to.data.get_mut(first..).unwrap_or_default();
    let mut out = MatrixMut::new(out, n_rows, weights.n_out, to.width);
    let onto = match &weights.bias {
        Some(bias) => Onto::Bias(bias),
        None => Onto::Nothing,
    };
    let goes_on = goes_on(pace);
    if goes_on(0) && product_onto(&mut out, left, right, onto, Threads::Pool, &goes_on) {
        Ok(())
    } else {
        Err(Error::Cancelled)
    }
}

/// Copies the bias to all rows; whether there is one.
fn put_bias(weights: &HostLinear<'_>, to: &mut Values) -> bool {
    let Some(bias) = &weights.bias else {
        return false;
    };
    let rows = to.data.par_chunks_mut(to.width.max(1));
    rows.for_each(|row| row.copy_from_slice(bias));
    true
}

/// Tells of multiply-adds that were done, and whether to go on.
fn goes_on(pace: &dyn Pace) -> impl Fn(u64) -> bool + Sync {
    |multiply_adds| {
        pace.did(multiply_adds);
        !pace.stops()
    }
}

/// Like [`product_of`] for bf16, on the matrix tiles of processors that have them.
fn product_bf16(
    from: &Values,
    bits: &[u16],
    weights: &HostLinear<'_>,
    (first, to): (usize, &mut Values),
    pace: &dyn Pace,
) -> Result<()> {
    if !amx::is_usable() || first > 0 || to.width != weights.n_out {
        return product_of(from, bits, weights, (first, to), pace);
    }
    let matrix = Bf16Matrix::new(bits, weights.n_out, weights.n_in, weights.is_input_major);
    let has_bias = put_bias(weights, to);
    if amx::product_bf16(&mut to.data, &from.data, matrix, has_bias, &goes_on(pace)) {
        Ok(())
    } else {
        Err(Error::Cancelled)
    }
}

/// WᵀW of each head's columns; incomplete if stopped. // [head, d_value, d_value]
fn grams(output: &HostLinear<'_>, n_heads: usize, d_value: usize, pace: &dyn Pace) -> Vec<f32> {
    let weight = output.widened();
    let gram = |head_idx: usize| {
        if pace.stops() {
            return None;
        }
        let at = head_idx * d_value;
        let (row_stride, col_stride) = if output.is_input_major {
            (output.n_out, 1)
        } else {
            (1, output.n_in)
        };
        let weight = &weight[at * row_stride..];
        let weight = Matrix::new(weight, d_value, output.n_out, row_stride, col_stride); // [d_value, n_out]
        let mut gram = vec![0.0; d_value * d_value];
        let mut out = MatrixMut::new(&mut gram, d_value, d_value, d_value);
        kernels::product(&mut out, weight, weight.transposed(), false, Threads::One);
        Some(gram)
    };
    let grams: Option<Vec<Vec<f32>>> = (0..n_heads).into_par_iter().map(gram).collect();
    grams.unwrap_or_default().concat()
}

/// to = W·from + b.
fn multiply(
    from: &Values,
    weights: &HostLinear<'_>,
    to: &mut Values,
    pace: &dyn Pace,
) -> Result<()> {
    to.reshape(from.n_rows(), weights.n_out);
    multiply_part(from, weights, (0, to), pace)
}

/// Like [`multiply`], in the columns of `to` from `first` on.
fn multiply_part(
    from: &Values,
    weights: &HostLinear<'_>,
    (first, to): (usize, &mut Values),
    pace: &dyn Pace,
) -> Result<()> {
    match &weights.weight {
        HostWeight::F32(weight) => product_of(from, weight, weights, (first, to), pace),
        HostWeight::Lent(weight) => product_of::<f32>(from, weight, weights, (first, to), pace),
        HostWeight::Columns { whole, .. } => {
            product_of::<f32>(from, whole, weights, (first, to), pace)
        }
        HostWeight::Bf16(bits) => product_bf16(from, bits, weights, (first, to), pace),
        HostWeight::FewRows(laid_out) => {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            let has_bias = put_bias(weights, to);
            few_rows(laid_out, &from.data, has_bias, &mut to.data);
            pace.did((from.n_rows() * weights.n_in * weights.n_out) as u64);
            Ok(())
        }
    }
}

/// Like [`multiply`]; for a few rows, weights are read and multiplied in parts that stay in the processor's cache.
fn read_and_multiply(
    from: &Values,
    later: &Later<'_>,
    to: &mut Values,
    pace: &dyn Pace,
) -> Result<()> {
    if from.n_rows() > FEW_ROWS {
        return multiply(from, &later.whole()?, to, pace);
    }
    to.reshape(from.n_rows(), later.n_out);
    for outputs in later.ranges(READ_AT_ONCE * rayon::current_num_threads()) {
        let part = (later.read)(outputs.clone())?;
        multiply_part(from, &part, (outputs.start, to), pace)?;
    }
    Ok(())
}

impl Ops for Cpu {
    type Buffer = Values;
    type Linear<'a> = CpuLinear<'a>;
    type Norm<'a> = HostNorm<'a>;

    fn takes_bf16(&self) -> bool {
        true
    }

    fn takes_bf16_whole(&self) -> bool {
        amx::is_usable()
    }

    fn linear_weights<'a>(&self, host: HostLinear<'a>) -> Result<CpuLinear<'a>> {
        Ok(CpuLinear::Read(host))
    }

    fn linear_later<'a>(&self, later: Later<'a>) -> Result<CpuLinear<'a>> {
        Ok(CpuLinear::Later(later))
    }

    fn norm_weights<'a>(&self, host: HostNorm<'a>) -> Result<HostNorm<'a>> {
        Ok(host)
    }

    fn for_few_rows<'a>(&self, host: HostLinear<'a>) -> HostLinear<'a> {
        let is_on_tiles = matches!(host.weight, HostWeight::Bf16(_)) && amx::is_usable();
        if is_on_tiles || matches!(host.weight, HostWeight::FewRows(_)) {
            return host;
        }
        let values = host.widened();
        let laid_out = FewRows::of(&values, host.n_out, host.n_in, host.is_input_major);
        drop(values);
        HostLinear {
            weight: HostWeight::FewRows(laid_out),
            ..host
        }
    }

    fn append(&self, to: &mut Values, from: &Values) -> Result<()> {
        to.width = from.width;
        to.data.extend_from_slice(&from.data);
        Ok(())
    }

    fn put(&self, values: &[f32], width: usize, to: &mut Values) -> Result<()> {
        to.width = width;
        to.data.clear();
        to.data.extend_from_slice(values);
        Ok(())
    }

    fn put_own(&self, values: Vec<f32>, width: usize, to: &mut Values) -> Result<()> {
        (to.width, to.data) = (width, values);
        Ok(())
    }

    fn get<'b>(&self, from: &'b Values) -> Result<OnHost<'b>> {
        Ok(OnHost {
            width: from.width,
            values: Cow::Borrowed(&from.data),
        })
    }

    fn copy(&self, from: &Values, to: &mut Values) -> Result<()> {
        to.clone_from(from);
        Ok(())
    }

    fn linear(
        &self,
        from: &Values,
        weights: &CpuLinear<'_>,
        to: &mut Values,
        pace: &dyn Pace,
    ) -> Result<()> {
        match weights {
            CpuLinear::Read(weights) => multiply(from, weights, to, pace),
            CpuLinear::Later(later) => read_and_multiply(from, later, to, pace),
        }
    }

    fn norm(&self, from: &Values, weights: &HostNorm<'_>, to: &mut Values) -> Result<()> {
        to.reshape(from.n_rows(), from.width);
        let (gain, bias) = (weights.gain.as_deref(), weights.bias.as_deref());
        match weights.kind {
            NormKind::LayerNorm => {
                kernels::layer_norm(
                    &from.data,
                    from.width,
                    weights.eps,
                    gain,
                    bias,
                    &mut to.data,
                );
            }
            NormKind::RmsNorm => {
                kernels::rms_norm(&from.data, from.width, weights.eps, gain, &mut to.data)
            }
            NormKind::Fixed | NormKind::Tanh => {
                let is_tanh = weights.kind == NormKind::Tanh;
                let width = from.width.max(1);
                let rows = from.data.chunks(width).zip(to.data.chunks_mut(width));
                for (from, to) in rows {
                    for (idx, (from, to)) in from.iter().zip(to).enumerate() {
                        let at = |values: Option<&[f32]>, otherwise: f32| {
                            values
                                .and_then(|all| all.get(idx).copied())
                                .unwrap_or(otherwise)
                        };
                        let value = if is_tanh {
                            (weights.alpha * from).tanh()
                        } else {
                            *from
                        };
                        *to = value * at(gain, 1.0) + at(bias, 0.0);
                    }
                }
            }
        }
        Ok(())
    }

    fn activate(&self, activation: Activation, values: &mut Values) -> Result<()> {
        kernels::activate(activation, &mut values.data);
        Ok(())
    }

    fn add(&self, to: &mut Values, from: &Values) -> Result<()> {
        kernels::add_assign(&mut to.data, &from.data);
        Ok(())
    }

    fn multiply(&self, to: &mut Values, from: &Values) -> Result<()> {
        kernels::multiply_assign(&mut to.data, &from.data);
        Ok(())
    }

    fn scale(&self, values: &mut Values, factor: f32) -> Result<()> {
        kernels::scale_assign(&mut values.data, factor);
        Ok(())
    }

    fn clip(&self, values: &mut Values, limit: f32) -> Result<()> {
        for value in &mut values.data {
            *value = value.clamp(-limit, limit);
        }
        Ok(())
    }

    fn lower(&self, values: &mut Values, limit: f32) -> Result<()> {
        let above = values.data.iter_mut().filter(|value| **value > limit);
        above.for_each(|value| *value = limit);
        Ok(())
    }

    fn clamped_gate(&self, up: &mut Values, gate: &Values, limit: f32, alpha: f32) -> Result<()> {
        kernels::clamped_gate_assign(&mut up.data, &gate.data, limit, alpha);
        Ok(())
    }

    fn norm_heads(&self, values: &mut Values, weights: &HostNorm<'_>, width: usize) -> Result<()> {
        let row_width = values.width;
        let mut normed = Values::default();
        values.width = width;
        self.norm(values, weights, &mut normed)?;
        normed.width = row_width;
        *values = normed;
        Ok(())
    }

    fn join_heads(
        &self,
        own: &Values,
        shared: &Values,
        n_heads: usize,
        to: &mut Values,
    ) -> Result<()> {
        let (n_own, n_shared) = (own.width / n_heads, shared.width);
        to.reshape(own.n_rows(), n_heads * (n_own + n_shared));
        let rows = own.data.chunks(own.width).zip(shared.data.chunks(n_shared));
        for (to, (own, shared)) in to.data.chunks_mut(n_heads * (n_own + n_shared)).zip(rows) {
            for (to, own) in to.chunks_mut(n_own + n_shared).zip(own.chunks(n_own)) {
                to[..n_own].copy_from_slice(own);
                to[n_own..].copy_from_slice(shared);
            }
        }
        Ok(())
    }

    fn gather_rows(&self, from: &Values, rows: &[usize], to: &mut Values) -> Result<()> {
        to.reshape(rows.len(), from.width);
        for (to, row_idx) in to.data.chunks_mut(from.width).zip(rows) {
            to.copy_from_slice(&from.data[row_idx * from.width..][..from.width]);
        }
        Ok(())
    }

    fn add_rows(
        &self,
        to: &mut Values,
        rows: &[usize],
        factors: &[f32],
        from: &Values,
    ) -> Result<()> {
        let width = to.width;
        for ((row_idx, factor), from) in rows.iter().zip(factors).zip(from.data.chunks(width)) {
            for (to, from) in to.data[row_idx * width..][..width].iter_mut().zip(from) {
                *to += factor * from;
            }
        }
        Ok(())
    }

    fn rope(&self, values: &mut Values, table: &RopeTable, d_head: usize) -> Result<()> {
        let width = values.width;
        values
            .data
            .par_chunks_mut(width)
            .enumerate()
            .for_each(|(position_idx, row)| {
                row.chunks_mut(d_head)
                    .for_each(|head| table.rotate(position_idx, head));
            });
        Ok(())
    }

    fn attend(
        &self,
        run: &Run<'_>,
        q: &Values,
        k: &Values,
        v: &Values,
        z: &mut Values,
    ) -> Result<Vec<HeadSummary>> {
        let input = HeadInput {
            q: &q.data,
            k: &k.data,
            v: &v.data,
        };
        z.reshape(
            run.visibility.n_queries_to_run(),
            run.spec.n_heads * run.spec.d_value,
        );
        if run.heads.len() < run.spec.n_heads {
            z.data.fill(0.0);
        }
        stream_heads(run, input, Level::current(), &mut z.data).ok_or(Error::Cancelled)
    }

    fn head_output_norms(
        &self,
        (rows, n_column_heads): (&Values, usize),
        output: &CpuLinear<'_>,
        n_heads: usize,
        pace: &dyn Pace,
    ) -> Result<Vec<Vec<f32>>> {
        let read;
        let output = match output {
            CpuLinear::Read(output) => output,
            CpuLinear::Later(later) => {
                read = later.whole()?;
                &read
            }
        };
        let d_value = output.n_in / n_heads;
        let n_rows = rows.n_rows();
        let grams = output
            .grams
            .get_or_init(|| grams(output, n_heads, d_value, pace));
        if grams.len() < n_heads * d_value * d_value {
            return Err(Error::Cancelled);
        }
        let norms = |head_idx: usize| {
            if pace.stops() {
                return None;
            }
            // ‖W x‖² = xᵀ (WᵀW) x: a small product per head instead of a full-width output.
            let at = head_idx / (n_heads / n_column_heads) * d_value;
            let gram = &grams[head_idx * d_value * d_value..][..d_value * d_value];
            let of_head = Matrix::new(&rows.data[at..], n_rows, d_value, rows.width, 1); // [position, d_value]
            let mut images = vec![0.0; n_rows * d_value];
            let mut out = MatrixMut::new(&mut images, n_rows, d_value, d_value);
            kernels::product(
                &mut out,
                of_head,
                Matrix::row_major(gram, d_value, d_value),
                false,
                Threads::One,
            );
            let squared = |row_idx: usize| {
                let row = &rows.data[row_idx * rows.width + at..][..d_value];
                let image = &images[row_idx * d_value..][..d_value];
                row.iter()
                    .zip(image)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum::<f64>()
            };
            // Rounding may give a tiny negative value where the norm is 0; NaN propagates.
            let norm = |s: f64| if s < 0.0 { 0.0 } else { s.sqrt() as f32 };
            Some((0..n_rows).map(squared).map(norm).collect())
        };
        let norms: Option<Vec<Vec<f32>>> = (0..n_heads).into_par_iter().map(norms).collect();
        norms.ok_or(Error::Cancelled)
    }
}
