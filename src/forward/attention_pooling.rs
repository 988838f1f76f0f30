//! Attention pooling: one learned query attends to every token, and a feed-forward layer follows.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::ops::{HostLinear, HostWeight, Ops};
use attnscope_spec::{Model, PoolingSpec};

use super::embed::apply_norm;
use super::sequence::Sequence;
use super::weights::WeightReader;

/// Returns the input of the head's map: the feed-forward layer's hidden values, then the layer's own input.
///
/// # Errors
/// When a tensor differs from its spec, or the device fails.
pub fn row<O: Ops>(
    ops: &O,
    model: &Model,
    pooling: &PoolingSpec,
    sequence: &Sequence,
    hidden: &O::Buffer,
) -> Result<Vec<f32>> {
    let pace = &|| false;
    let tensors = &model.checkpoint.tensors;
    let shelf = WeightReader::new(ops, tensors, pace);
    let query = tensors
        .expect(&pooling.query, &pooling.query_shape)?
        .widen()?;
    let mut learned = O::Buffer::default();
    ops.put(&query, query.len(), &mut learned)?;
    let [mut q, mut k, mut v] = [0; 3].map(|_| O::Buffer::default());
    ops.linear(&learned, &shelf.linear(&pooling.q)?, &mut q, pace)?;
    ops.linear(hidden, &shelf.linear(&pooling.k)?, &mut k, pace)?;
    ops.linear(hidden, &shelf.linear(&pooling.v)?, &mut v, pace)?;
    let mixed = mixed(
        &ops.get(&q)?.values,
        [&ops.get(&k)?.values, &ops.get(&v)?.values],
        pooling.n_heads,
        |idx| sequence.is_real(idx),
    );
    let [mut from, mut read, mut normed, mut wide] = [0; 4].map(|_| O::Buffer::default());
    ops.put(&mixed, mixed.len(), &mut from)?;
    ops.linear(&from, &shelf.linear(&pooling.o)?, &mut read, pace)?;
    apply_norm(ops, model, &pooling.norm, &read, &mut normed)?;
    ops.linear(&normed, &shelf.linear(&pooling.up)?, &mut wide, pace)?;
    ops.activate(pooling.activation, &mut wide)?;
    let wide = ops.get(&wide)?;
    Ok([&*wide.values, &*ops.get(&read)?.values].concat())
}

/// Returns each head's attention-weighted mean of the values of real tokens. // q: [width]; k, v: [position, width]
fn mixed(
    q: &[f32],
    [k, v]: [&[f32]; 2],
    n_heads: usize,
    is_real: impl Fn(usize) -> bool,
) -> Vec<f32> {
    let width = q.len().max(1);
    let d_head = width / n_heads.max(1);
    let mut mixed = vec![0.0f64; q.len()];
    for (head_idx, of_head) in mixed.chunks_mut(d_head.max(1)).enumerate() {
        let part = head_idx * d_head..head_idx * d_head + of_head.len();
        let rows = |all: &[f32]| -> Vec<Vec<f64>> {
            let rows = all
                .chunks(width)
                .enumerate()
                .filter(|(idx, _)| is_real(*idx));
            let wide = |row: &[f32]| row[part.clone()].iter().map(|v| f64::from(*v)).collect();
            rows.map(|(_, row)| wide(row)).collect()
        };
        let scores: Vec<f64> = rows(k)
            .iter()
            .map(|key| {
                let products = key
                    .iter()
                    .zip(&q[part.clone()])
                    .map(|(k, q)| k * f64::from(*q));
                products.sum::<f64>() / (of_head.len() as f64).sqrt()
            })
            .collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (weight, value) in weights.iter().zip(rows(v)) {
            let share = weight / sum;
            of_head
                .iter_mut()
                .zip(value)
                .for_each(|(to, v)| *to += share * v);
        }
    }
    mixed.iter().map(|v| *v as f32).collect()
}

/// Extends a map to add the `n_behind` values appended to its input to its outputs.
pub fn and_itself<'a>(
    host: &HostLinear<'_>,
    range: Range<usize>,
    n_behind: usize,
) -> HostLinear<'a> {
    let rows = host.widened();
    let rows = rows.chunks(host.n_in.max(1)).zip(range);
    let extended = rows.flat_map(|(row, output)| {
        let mut extended = row.to_vec();
        extended.extend((0..n_behind).map(|idx| if idx == output { 1.0 } else { 0.0 }));
        extended
    });
    HostLinear {
        n_out: host.n_out,
        n_in: host.n_in + n_behind,
        weight: HostWeight::F32(Cow::Owned(extended.collect())),
        is_input_major: false,
        bias: host.bias.clone().map(|bias| Cow::Owned(bias.into_owned())),
        grams: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_averages_the_values_of_real_tokens_only() {
        // Two heads of width 1: the first prefers the second token, the second weighs all alike.
        let (q, k) = ([2.0f32, 0.0], [0.0, 5.0, 1.0, 5.0, 9.0, 5.0]);
        let v = [1.0, 10.0, 3.0, 30.0, 100.0, 1000.0];
        let found = mixed(&q, [&k, &v], 2, |idx| idx < 2);
        let second = (2.0f64).exp() / (1.0 + (2.0f64).exp());
        assert!(
            (f64::from(found[0]) - (1.0 + 2.0 * second)).abs() < 1e-6,
            "{found:?}"
        );
        assert_eq!(found[1], 20.0);
    }
}
