//! Factors of a learned bias that depend on what a query's position holds: WavLM's gated relative position bias (Chen et al. 2022,
//! arXiv 2110.13900), and shares of learned profiles of distances.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::Growth;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::sigmoid;
use attnscope_compute::ops::{Cpu, Ops};
use attnscope_compute::pace::Pace;
use attnscope_spec::{BiasGate, BlockSpec, ShareGate};

use super::weights::WeightReader;

/// Computes the factors of every query and head. // rows: [position, d_model] → [position, n_heads · factors of a head]
///
/// # Errors
/// When a tensor is missing or has the wrong shape.
pub(super) fn bias_factors<O: Ops>(
    gate: &BiasGate,
    (growth, positions, n_past): (Option<Growth>, &[usize], usize),
    shelf: WeightReader<'_, O>,
    rows: &[f32],
) -> Result<Vec<f32>> {
    match gate {
        BiasGate::Shares(gate) => shares(gate, shelf, rows),
        BiasGate::Profiles(gate) | BiasGate::Values(gate) => {
            let (ops, map) = (shelf.ops, shelf.linear(&gate.map)?);
            let (mut from, mut mapped) = (O::Buffer::default(), O::Buffer::default());
            ops.put(rows, gate.map.n_in, &mut from)?;
            ops.linear(&from, &map, &mut mapped, shelf.pace)?;
            let mut factors = ops.get(&mapped)?.values.into_owned();
            if let Some(growth) = growth {
                let rows = factors.chunks_mut(gate.map.n_out().max(1));
                for (row, position) in rows.zip(positions) {
                    let by = growth.factor(*position);
                    row.iter_mut().for_each(|factor| *factor *= by);
                }
            }
            // Rows are counted from the first token of the text.
            factors.splice(0..0, std::iter::repeat_n(0.0, n_past * gate.map.n_out()));
            Ok(factors)
        }
    }
}

/// Computes one factor of every query and head. // rows: [position, n_heads · d_head] → [position, head]
fn shares<O: Ops>(gate: &ShareGate, shelf: WeightReader<'_, O>, rows: &[f32]) -> Result<Vec<f32>> {
    let (n_heads, d_head) = (gate.n_heads, gate.map.n_in.max(1));
    let map = shelf.on_host(&gate.map)?;
    let weights = map.widened(); // [output, d_head]
    let bias = map.bias.as_deref().unwrap_or(&[]);
    let stored = shelf.tensors.expect(&gate.scales, &gate.scales_shape())?;
    let scales = stored.widen()?;
    let n_outputs = map.n_out.max(2);
    let sum = |values: &[f32], outputs: std::ops::Range<usize>| -> f32 {
        outputs
            .map(|output| {
                let weights = &weights[output * d_head..][..d_head];
                let product: f32 = weights.iter().zip(values).map(|(w, v)| w * v).sum();
                product + bias.get(output).copied().unwrap_or(0.0)
            })
            .sum()
    };
    let heads = rows.chunks(d_head).enumerate();
    let of_head = |(nth, values): (usize, &[f32])| {
        let first = sigmoid(sum(values, 0..n_outputs / 2));
        let second = sigmoid(sum(values, n_outputs / 2..n_outputs));
        first * (second * scales[nth % n_heads] - 1.0) + 2.0
    };
    Ok(heads.map(of_head).collect())
}

/// Computes the factors of a block's self-attention from the block's input, to compare a head with another checkpoint's; `None` if
/// its bias has none. // resid: [position, d_model] → [position, n_heads · factors of a head]
///
/// # Errors
/// When a tensor is missing or has the wrong shape.
pub fn bias_factors_on_host(
    tensors: &Tensors,
    block: &BlockSpec,
    (positions, resid): (&[usize], &[f32]),
    pace: &dyn Pace,
) -> Result<Option<Vec<f32>>> {
    let Some(own) = block.own() else {
        return Ok(None);
    };
    let Some(gate) = own.projections.bias_gate.as_ref() else {
        return Ok(None);
    };
    let shelf = WeightReader::new(&Cpu, tensors, pace);
    let (mut from, mut normed) = Default::default();
    Cpu.put(resid, gate.d_model(), &mut from)?;
    let rows = match &block.attn_pre {
        Some(norm) => {
            Cpu.norm(&from, &shelf.norm(norm)?, &mut normed)?;
            &normed
        }
        None => &from,
    };
    let grows = (own.attention.growth, positions, 0);
    bias_factors(gate, grows, shelf, &Cpu.get(rows)?.values).map(Some)
}
