//! Data on a candle device: activations, affine maps and norms.

use candle_core::{D, DType, Device, Tensor};
use half::bf16;
use half::slice::HalfBitsSliceExt;

use crate::error::{Error, Result};
use crate::ops::{HostLinear, HostNorm, HostWeight, NormKind};

/// A matrix of activations on the device. // [row, width]
#[derive(Debug, Clone, Default)]
pub struct OnCandle(Option<Tensor>);

impl OnCandle {
    pub(super) fn tensor(&self) -> Result<&Tensor> {
        self.0
            .as_ref()
            .ok_or_else(|| Error::Device("a buffer is read before it is written".to_owned()))
    }

    pub(super) fn set(&mut self, tensor: Tensor) {
        self.0 = Some(tensor);
    }
}

/// Device → host, row by row.
pub(super) fn host(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

/// An affine map on the device.
#[derive(Debug, Clone)]
pub struct Affine {
    /// A view of the uploaded tensor. // [n_in, n_out]
    weight: Tensor,
    /// [n_out]
    bias: Option<Tensor>,
}

impl Affine {
    pub(super) fn new(weights: &HostLinear<'_>, device: &Device) -> Result<Self> {
        let (n_in, n_out) = (weights.n_in, weights.n_out);
        let shape = if weights.is_input_major {
            (n_in, n_out)
        } else {
            (n_out, n_in)
        };
        // Half of the bytes travel, and the device widens them faster.
        let stored = match &weights.weight {
            HostWeight::Bf16(bits) => {
                let stored: &[bf16] = bits.reinterpret_cast();
                Tensor::from_slice(stored, shape, device)?.to_dtype(DType::F32)?
            }
            _ => Tensor::from_slice(&weights.widened(), shape, device)?,
        };
        let weight = if weights.is_input_major {
            stored
        } else {
            stored.t()?
        };
        let bias = match &weights.bias {
            Some(bias) => Some(Tensor::from_slice(bias, n_out, device)?),
            None => None,
        };
        Ok(Self { weight, bias })
    }

    pub(super) fn of(&self, from: &Tensor) -> Result<Tensor> {
        let product = from.matmul(&self.weight)?; // [row, n_out]
        Ok(match &self.bias {
            Some(bias) => product.broadcast_add(bias)?,
            None => product,
        })
    }

    pub(super) fn n_out(&self) -> Result<usize> {
        Ok(self.weight.dim(1)?)
    }

    /// The weights of each head's inputs. // [head, d_value, n_out]
    pub(super) fn by_heads(&self, n_heads: usize) -> Result<Tensor> {
        let (n_in, n_out) = self.weight.dims2()?;
        let whole = self.weight.contiguous()?;
        Ok(whole.reshape((n_heads, n_in / n_heads, n_out))?)
    }
}

/// A norm on the device.
#[derive(Debug, Clone)]
pub struct NormWeights {
    kind: NormKind,
    eps: f64,
    alpha: f64,
    gain: Option<Tensor>,
    bias: Option<Tensor>,
}

impl NormWeights {
    pub(super) fn new(weights: &HostNorm<'_>, device: &Device) -> Result<Self> {
        let put = |values: &Option<std::borrow::Cow<'_, [f32]>>| match values {
            Some(values) => Tensor::from_slice(values, values.len(), device).map(Some),
            None => Ok(None),
        };
        let has_bias = weights.kind != NormKind::RmsNorm;
        Ok(Self {
            kind: weights.kind,
            eps: f64::from(weights.eps),
            alpha: f64::from(weights.alpha),
            gain: put(&weights.gain)?,
            bias: if has_bias { put(&weights.bias)? } else { None },
        })
    }

    /// Normalises each row; gain and bias of several rows' length apply to rows in turn. // [row, width]
    pub(super) fn of(&self, from: &Tensor) -> Result<Tensor> {
        let (n_rows, width) = from.dims2()?;
        // Summed in f64: a row's mean may be large compared with its deviation.
        let mut wide = from.to_dtype(DType::F64)?;
        if self.kind == NormKind::LayerNorm {
            wide = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
        }
        if self.kind == NormKind::Tanh {
            wide = wide.affine(self.alpha, 0.0)?.tanh()?;
        } else if self.kind != NormKind::Fixed {
            let mean_square = wide.sqr()?.mean_keepdim(D::Minus1)?; // [row, 1]
            let deviation = mean_square.affine(1.0, self.eps)?.sqrt()?;
            wide = wide.broadcast_div(&deviation)?;
        }
        let mut normed = wide.to_dtype(DType::F32)?;
        for (values, is_gain) in [(&self.gain, true), (&self.bias, false)] {
            let Some(values) = values else { continue };
            let n = values.dim(0)?;
            let in_turn = normed.reshape((n_rows * width / n, n))?;
            normed = if is_gain {
                in_turn.broadcast_mul(values)?
            } else {
                in_turn.broadcast_add(values)?
            };
        }
        Ok(normed.reshape((n_rows, width))?)
    }
}
