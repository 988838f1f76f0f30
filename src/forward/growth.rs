//! Growth of queries with their position: by a rule, the same in all heads, or as a model learned it for each head. Learned factors of
//! heads.

use std::borrow::Cow;

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{HeadGrowth, HeadScales};

use super::block_weights::AttentionWeights;
use super::context::BlockContext;
use super::weights::WeightReader;

/// Multiplies each query by the factors of its position and of its head. // q: [position, width]
pub(super) fn grow_rows<O: Ops>(
    (attention, weights): (&AttentionSpec, &AttentionWeights<'_, O>),
    positions: &[usize],
    width: usize,
    q: &mut [f32],
) {
    if let Some(growth) = attention.growth {
        for (row, position) in q.chunks_mut(width.max(1)).zip(positions) {
            let factor = growth.factor(*position);
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }
    if let Some(growth) = &weights.q_growth {
        grow_heads(growth, positions, width, q);
    }
    if let Some(scales) = &weights.head_scales {
        let d_head = (width / scales.len().max(1)).max(1);
        for (head, scale) in q.chunks_mut(d_head).zip(scales.iter().cycle()) {
            head.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

/// Multiplies the queries of each head by scale · ln(position + 1) + bias, where a model learned both. // q: [position, width]
pub(super) fn grow_by_head<O: Ops>(
    context: &BlockContext<'_, O>,
    growth: Option<&[Cow<'_, [f32]>; 2]>,
    q: &mut O::Buffer,
) -> Result<()> {
    let Some(growth) = growth else { return Ok(()) };
    let host = context.ops.get(q)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    grow_heads(growth, &context.positions(), width, &mut values);
    context.ops.put_own(values, width, q)
}

/// As [`grow_by_head`], for rows on the host.
fn grow_heads(
    [scale, bias]: &[Cow<'_, [f32]>; 2],
    positions: &[usize],
    width: usize,
    q: &mut [f32],
) {
    let d_head = (width / scale.len().max(1)).max(1);
    for (row, position) in q.chunks_mut(width.max(1)).zip(positions) {
        let log = ((position + 1) as f32).ln();
        let heads = row.chunks_mut(d_head).zip(scale.iter().zip(bias.iter()));
        for (head, (scale, bias)) in heads {
            let factor = scale * log + bias;
            head.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

impl<'a, O: Ops> WeightReader<'a, O> {
    /// Scale and bias of the growth of queries by head.
    pub(super) fn growth(self, growth: Option<&HeadGrowth>) -> Result<Option<[Cow<'a, [f32]>; 2]>> {
        match growth {
            Some(growth) => Ok(Some([
                self.vector(&growth.scale, growth.n_heads)?,
                self.vector(&growth.bias, growth.n_heads)?,
            ])),
            None => Ok(None),
        }
    }

    /// The learned factors of the scores of each head. // [head]
    pub(super) fn head_scales(self, scales: Option<&HeadScales>) -> Result<Option<Vec<f32>>> {
        let Some(scales) = scales else {
            return Ok(None);
        };
        let stored = self.tensors.expect(&scales.logarithms, &scales.shape())?;
        let logarithms = stored.widen()?;
        let most = scales.most.ln();
        // Not `min`, which would turn a NaN into the largest factor.
        let factor = |log: &f32| if *log > most { most } else { *log }.exp();
        Ok(Some(logarithms.iter().map(factor).collect()))
    }
}
