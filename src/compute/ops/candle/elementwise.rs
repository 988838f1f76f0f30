//! Activations, clips and rotations on a candle device. candle's maxima and minima ignore a NaN on some devices, so comparisons
//! are used instead, which propagate it.

use candle_core::{Result, Tensor};

use crate::attention::RopeTable;
use crate::ops::Activation;

pub(super) fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Gelu => x.gelu_erf(),
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => positive(x),
        Activation::ReluSquared => positive(x)?.sqr(),
        Activation::Silu => gated(x, 1.0),
        Activation::QuickGelu => gated(x, 1.702),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => x.affine(-1.0, 0.0)?.exp()?.affine(1.0, 1.0)?.recip(),
        Activation::LeakyRelu => x.lt(0f32)?.where_cond(&x.affine(0.01, 0.0)?, x),
        Activation::Identity => Ok(x.clone()),
    }
}

fn positive(x: &Tensor) -> Result<Tensor> {
    x.lt(0f32)?.where_cond(&x.zeros_like()?, x)
}

/// x·sigmoid(α·x).
fn gated(x: &Tensor, alpha: f32) -> Result<Tensor> {
    x.div(&x.affine(-f64::from(alpha), 0.0)?.exp()?.affine(1.0, 1.0)?)
}

pub(super) fn at_most(x: &Tensor, limit: f32) -> Result<Tensor> {
    let limits = Tensor::full(limit, x.shape(), x.device())?;
    x.gt(limit)?.where_cond(&limits, x)
}

fn at_least(x: &Tensor, limit: f32) -> Result<Tensor> {
    let limits = Tensor::full(limit, x.shape(), x.device())?;
    x.lt(limit)?.where_cond(&limits, x)
}

pub(super) fn clip(x: &Tensor, limit: f32) -> Result<Tensor> {
    at_least(&at_most(x, limit)?, -limit)
}

pub(super) fn clamped_gate(up: &Tensor, gate: &Tensor, limit: f32, alpha: f32) -> Result<Tensor> {
    let gate = gated(&at_most(gate, limit)?, alpha)?;
    clip(up, limit)?.affine(1.0, 1.0)?.mul(&gate)
}

/// Rotates every head of every row. // [position, n_heads · d_head]
pub(super) fn rope(values: &Tensor, table: &RopeTable, d_head: usize) -> Result<Tensor> {
    let (n, width) = values.dims2()?;
    let (n_heads, n_pairs) = (width / d_head, table.n_pairs);
    let of_positions = |angles: &[f32]| {
        let angles = &angles[..n * n_pairs];
        Tensor::from_slice(angles, (n, 1, n_pairs), values.device())
    };
    let (cos, sin) = (of_positions(&table.cos)?, of_positions(&table.sin)?);
    let (cos_2, sin_2) = match &table.of_second {
        Some([cos, sin]) => (of_positions(cos)?, of_positions(sin)?),
        None => (cos.clone(), sin.clone()),
    };
    let heads = values.reshape((n, n_heads, d_head))?;
    let turning = heads.narrow(2, table.first, 2 * n_pairs)?;
    let by_parts = (n, n_heads, table.n_parts, 2, n_pairs / table.n_parts);
    let (x, y) = if table.interleaved {
        let pairs = turning.contiguous()?.reshape((n, n_heads, n_pairs, 2))?;
        let nth = |idx| pairs.narrow(3, idx, 1)?.squeeze(3)?.contiguous();
        (nth(0)?, nth(1)?)
    } else {
        let parts = turning.contiguous()?.reshape(by_parts)?;
        let half = |idx| {
            let half = parts.narrow(3, idx, 1)?.squeeze(3)?.contiguous()?;
            half.reshape((n, n_heads, n_pairs))
        };
        (half(0)?, half(1)?)
    };
    let a = x.broadcast_mul(&cos)?.sub(&y.broadcast_mul(&sin)?)?; // [position, head, pair]
    let b = y.broadcast_mul(&cos_2)?.add(&x.broadcast_mul(&sin_2)?)?;
    let turned = if table.interleaved {
        Tensor::stack(&[a, b], 3)?.reshape((n, n_heads, 2 * n_pairs))?
    } else {
        let of_part = (n, n_heads, table.n_parts, n_pairs / table.n_parts);
        let halves = [a.reshape(of_part)?, b.reshape(of_part)?];
        Tensor::stack(&halves, 3)?.reshape((n, n_heads, 2 * n_pairs))?
    };
    let after = table.first + 2 * n_pairs;
    let mut parts = Vec::new();
    if table.first > 0 {
        parts.push(heads.narrow(2, 0, table.first)?);
    }
    parts.push(turned);
    if after < d_head {
        parts.push(heads.narrow(2, after, d_head - after)?);
    }
    Tensor::cat(&parts, 2)?.reshape((n, width))
}
