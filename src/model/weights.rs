//! Reads the weights of one block, as its spec names them, and lets go of them after it.

use std::borrow::Cow;
use std::ops::Range;

use super::spec::{BlockSpec, LinearSource, NormSource, Part};
use crate::checkpoint::Tensors;
use crate::error::Result;
use crate::ops::{HostLinear, HostNorm, Ops};

/// Reads an affine map; borrowed from the file when it is stored whole, as f32.
///
/// # Errors
/// When a tensor is missing or has another shape.
pub(super) fn read_linear<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
) -> Result<HostLinear<'a>> {
    let weight = tensors
        .expect(&source.weight, &source.stored_shape())?
        .widen();
    let weight = if source.is_input_major {
        choose(weight, source.n_in, source.n_stored_out, source.part)
    } else {
        choose_rows(weight, source.n_in, source.part)
    };
    let bias = match &source.bias {
        Some(name) => {
            let bias = tensors.expect(name, &[source.n_stored_out])?.widen();
            Some(choose(bias, 1, source.n_stored_out, source.part))
        }
        None => None,
    };
    Ok(HostLinear {
        n_out: source.n_out(),
        n_in: source.n_in,
        weight,
        is_input_major: source.is_input_major,
        bias,
    })
}

/// Reads some outputs of an unfused affine map stored as [n_out, n_in].
///
/// # Errors
/// When a tensor is missing or has another shape.
pub(super) fn read_linear_rows<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    rows: Range<usize>,
) -> Result<HostLinear<'a>> {
    let weight = tensors
        .expect(&source.weight, &source.stored_shape())?
        .widen_rows(rows.clone());
    let bias = match &source.bias {
        Some(name) => Some(
            tensors
                .expect(name, &[source.n_stored_out])?
                .widen_rows(rows.clone()),
        ),
        None => None,
    };
    Ok(HostLinear {
        n_out: rows.len(),
        n_in: source.n_in,
        weight,
        is_input_major: false,
        bias,
    })
}

/// Of each row of `n_stored` values, those that `part` means.
fn choose(values: Cow<'_, [f32]>, n_rows: usize, n_stored: usize, part: Part) -> Cow<'_, [f32]> {
    if part.len == part.group {
        return values;
    }
    let mut chosen = Vec::with_capacity(n_rows * n_stored / part.group * part.len);
    for group in values.chunks(part.group) {
        chosen.extend_from_slice(&group[part.offset..part.offset + part.len]);
    }
    Cow::Owned(chosen)
}

/// Of the rows of width `n_in`, those that `part` means.
fn choose_rows(values: Cow<'_, [f32]>, n_in: usize, part: Part) -> Cow<'_, [f32]> {
    if part.len == part.group {
        return values;
    }
    let in_values = Part {
        group: part.group * n_in,
        offset: part.offset * n_in,
        len: part.len * n_in,
    };
    let n_values = values.len();
    choose(values, 1, n_values, in_values)
}

/// Reads a norm.
///
/// # Errors
/// When a tensor is missing or has another shape.
pub(super) fn read_norm<'a>(tensors: &'a Tensors, source: &NormSource) -> Result<HostNorm<'a>> {
    let read = |name: &Option<String>| -> Result<Option<Cow<'a, [f32]>>> {
        name.as_ref()
            .map(|name| Ok(tensors.expect(name, &[source.width])?.widen()))
            .transpose()
    };
    Ok(HostNorm {
        kind: source.kind,
        eps: source.eps,
        gain: read(&source.gain)?,
        bias: read(&source.bias)?,
    })
}

/// The projections of one attention.
pub struct AttentionWeights<'a, O: Ops> {
    pub pre: Option<O::Norm<'a>>,
    pub q: O::Linear<'a>,
    pub k: O::Linear<'a>,
    pub v: O::Linear<'a>,
}

/// One block's weights, where the device can use them.
pub struct BlockWeights<'a, O: Ops> {
    pub attention: AttentionWeights<'a, O>,
    pub o: O::Linear<'a>,
    pub attn_out: Option<O::Norm<'a>>,
    pub attn_post: Option<O::Norm<'a>>,
    pub mlp_pre: Option<O::Norm<'a>>,
    pub up: O::Linear<'a>,
    pub gate: Option<O::Linear<'a>>,
    pub down: O::Linear<'a>,
    pub mlp_out: Option<O::Norm<'a>>,
    pub mlp_post: Option<O::Norm<'a>>,
}

impl<'a, O: Ops> AttentionWeights<'a, O> {
    /// # Errors
    /// When a tensor is missing or has another shape, or the device refuses it.
    pub fn read(ops: &O, tensors: &'a Tensors, spec: &BlockSpec) -> Result<Self> {
        let linear = |source| ops.linear_weights(read_linear(tensors, source)?);
        let pre = spec
            .attn_pre
            .as_ref()
            .map(|s| ops.norm_weights(read_norm(tensors, s)?))
            .transpose()?;
        Ok(Self {
            pre,
            q: linear(&spec.q)?,
            k: linear(&spec.k)?,
            v: linear(&spec.v)?,
        })
    }
}

impl<'a, O: Ops> BlockWeights<'a, O> {
    /// # Errors
    /// When a tensor is missing or has another shape, or the device refuses it.
    pub fn read(ops: &O, tensors: &'a Tensors, spec: &BlockSpec) -> Result<Self> {
        let linear = |source| ops.linear_weights(read_linear(tensors, source)?);
        let norm = |source: &Option<NormSource>| {
            source
                .as_ref()
                .map(|s| ops.norm_weights(read_norm(tensors, s)?))
                .transpose()
        };
        Ok(Self {
            attention: AttentionWeights::read(ops, tensors, spec)?,
            o: linear(&spec.o)?,
            attn_out: norm(&spec.attn_out)?,
            attn_post: norm(&spec.attn_post)?,
            mlp_pre: norm(&spec.mlp_pre)?,
            up: linear(&spec.mlp.up)?,
            gate: spec.mlp.gate.as_ref().map(linear).transpose()?,
            down: linear(&spec.mlp.down)?,
            mlp_out: norm(&spec.mlp_out)?,
            mlp_post: norm(&spec.mlp_post)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_interleaved_rows_is_taken_from_every_group() {
        // Two heads of [q k v], one row each, rows of two.
        let stored: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let part = Part {
            group: 3,
            offset: 1,
            len: 1,
        };
        assert_eq!(
            choose_rows(Cow::Borrowed(&stored), 2, part).as_ref(),
            [2.0, 3.0, 8.0, 9.0]
        );
        assert_eq!(
            choose(Cow::Borrowed(&stored), 2, 6, part).as_ref(),
            [1.0, 4.0, 7.0, 10.0]
        );
    }
}
