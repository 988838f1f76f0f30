//! Several residual streams, of which a block works on one (AltUp, Baykal et al. 2023, arXiv 2301.13310): it predicts all of
//! them, runs on one prediction, and corrects all by that prediction's error.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{PredictedStreams, StreamMaps, TokenBranch};

use super::context::BlockContext;
use super::token_branch::of_tokens;
use super::weights::WeightReader;

/// Lower limit of the mean square that a stream is divided by.
const LEAST_SQUARE: f32 = 1e-5;

/// Scales rows to the root mean square of `others`. // [row, width]
fn as_long_as(others: &[f32], rows: &mut [f32], width: usize) {
    let square = |row: &[f32]| row.iter().map(|v| v * v).sum::<f32>() / width as f32;
    let pairs = rows
        .chunks_mut(width.max(1))
        .zip(others.chunks(width.max(1)));
    for (row, other) in pairs {
        let target = square(other).sqrt();
        let own = square(row).max(LEAST_SQUARE).sqrt();
        row.iter_mut().for_each(|v| *v = *v * target / own);
    }
}

/// Returns the input of both the prediction and the correction map. // from: [row, d_model] → [row, n]
fn routed<O: Ops>(
    spec: &PredictedStreams,
    context: &BlockContext<'_, O>,
    from: &O::Buffer,
) -> Result<O::Buffer> {
    let (ops, shelf) = (context.ops, context.shelf());
    let (mut normed, mut routed) = (O::Buffer::default(), O::Buffer::default());
    ops.norm(from, &shelf.norm(&spec.router_norm)?, &mut normed)?;
    let router = shelf.linear(&spec.router)?;
    ops.linear(&normed, &router, &mut routed, context.pace)?;
    ops.activate(Activation::Tanh, &mut routed)?;
    Ok(routed)
}

/// Predicts all streams after the block. // streams, result: [row, n · d_model]; main: [row, d_model]
pub(super) fn predict<O: Ops>(
    spec: &PredictedStreams,
    context: &BlockContext<'_, O>,
    streams: &[f32],
    main: &O::Buffer,
) -> Result<Vec<f32>> {
    let (ops, n) = (context.ops, spec.n);
    let routed = routed(spec, context, main)?;
    let mut shares = O::Buffer::default();
    let predict = context.shelf().linear(&spec.predict)?;
    ops.linear(&routed, &predict, &mut shares, context.pace)?; // [row, n · n]
    let shares = ops.get(&shares)?;
    let mut predicted = streams.to_vec();
    let d_model = spec.router.n_in;
    let rows = predicted.chunks_mut((n * d_model).max(1));
    let rows = rows.zip(streams.chunks((n * d_model).max(1)));
    for ((to, from), shares) in rows.zip(shares.values.chunks(n * n)) {
        for (to, shares) in to.chunks_mut(d_model).zip(shares.chunks(n)) {
            for (from, share) in from.chunks(d_model).zip(shares) {
                let pairs = to.iter_mut().zip(from);
                pairs.for_each(|(to, from)| *to += share * from);
            }
        }
    }
    Ok(predicted)
}

/// Corrects all predicted streams, given the block's output `main`; the per-token branch is added to all streams except the
/// first. // predicted, result: [row, n · d_model]; main: [row, d_model]
pub(super) fn correct<O: Ops>(
    spec: &PredictedStreams,
    context: &BlockContext<'_, O>,
    by_token: Option<&TokenBranch>,
    mut predicted: Vec<f32>,
    main: &O::Buffer,
) -> Result<Vec<f32>> {
    let (ops, n) = (context.ops, spec.n);
    let d_model = spec.router.n_in;
    let width = n * d_model;
    let routed = routed(spec, context, main)?;
    let mut shares = O::Buffer::default();
    let correct = context.shelf().linear(&spec.correct)?;
    ops.linear(&routed, &correct, &mut shares, context.pace)?; // [row, n]
    {
        let (shares, main) = (ops.get(&shares)?, ops.get(main)?);
        let rows = predicted.chunks_mut(width.max(1));
        let rows = rows.zip(main.values.chunks(d_model.max(1)));
        for ((row, main), shares) in rows.zip(shares.values.chunks(n)) {
            let of_active = &row[spec.active * d_model..(spec.active + 1) * d_model];
            let off: Vec<f32> = main.iter().zip(of_active).map(|(a, b)| a - b).collect();
            for (to, share) in row.chunks_mut(d_model).zip(shares) {
                let pairs = to.iter_mut().zip(&off);
                pairs.for_each(|(to, off)| *to += off * (share + 1.0));
            }
        }
    }
    let Some(branch) = by_token else {
        return Ok(predicted);
    };
    let mut active = columns(&predicted, width, spec.active * d_model, d_model);
    if let Some(name) = &spec.scale {
        let factors = context.shelf().vector(name, d_model)?;
        for row in active.chunks_mut(d_model) {
            row.iter_mut().zip(&*factors).for_each(|(v, by)| *v *= by);
        }
    }
    let mut from = O::Buffer::default();
    ops.put(&active, d_model, &mut from)?;
    let added = of_tokens(context, branch, &context.tokens(), &from)?;
    let added = ops.get(&added)?;
    let rows = predicted.chunks_mut(width.max(1));
    for (row, added) in rows.zip(added.values.chunks(d_model.max(1))) {
        for to in row.chunks_mut(d_model).skip(1) {
            to.iter_mut().zip(added).for_each(|(to, v)| *to += v);
        }
    }
    Ok(predicted)
}

/// Makes the further streams from the first, scaled to its length. // first: [row, d_model]; returns one [row, d_model] each
pub(super) fn begin<O: Ops>(
    maps: &StreamMaps,
    ops: &O,
    tensors: &Tensors,
    embedded: &O::Buffer,
    first: &[f32],
) -> Result<Vec<Vec<f32>>> {
    let pace = &|| false;
    let shelf = WeightReader::new(ops, tensors, pace);
    let further = maps.first.iter();
    further
        .map(|map| {
            let mut mapped = O::Buffer::default();
            ops.linear(embedded, &shelf.linear(map)?, &mut mapped, pace)?;
            let mut rows = ops.get(&mapped)?.values.into_owned();
            as_long_as(first, &mut rows, map.n_out());
            Ok(rows)
        })
        .collect()
}

/// Returns the mean of all streams, after the further ones are mapped and scaled to the first's length.
/// // one [row, d_model] each
pub(super) fn end<O: Ops>(
    maps: &StreamMaps,
    ops: &O,
    tensors: &Tensors,
    streams: &[Vec<f32>],
) -> Result<Vec<f32>> {
    let pace = &|| false;
    let shelf = WeightReader::new(ops, tensors, pace);
    let Some((first, others)) = streams.split_first() else {
        return Ok(Vec::new());
    };
    let mut sum = first.clone();
    for (map, stream) in maps.last.iter().zip(others) {
        let (mut from, mut mapped) = (O::Buffer::default(), O::Buffer::default());
        ops.put(stream, map.n_in, &mut from)?;
        ops.linear(&from, &shelf.linear(map)?, &mut mapped, pace)?;
        let mut rows = ops.get(&mapped)?.values.into_owned();
        as_long_as(first, &mut rows, map.n_out());
        sum.iter_mut().zip(&rows).for_each(|(sum, v)| *sum += v);
    }
    let n = streams.len() as f32;
    sum.iter_mut().for_each(|sum| *sum /= n);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::as_long_as;

    #[test]
    fn rows_are_scaled_to_the_root_mean_square_of_others() {
        let mut rows = [3.0, 4.0, 0.0, 0.0];
        as_long_as(&[5.0, 5.0, 1.0, 1.0], &mut rows, 2);
        let length = |row: &[f32]| row.iter().map(|v| v * v).sum::<f32>();
        assert!((length(&rows[..2]) - 50.0).abs() < 1e-4, "{rows:?}");
        assert_eq!(rows[2..], [0.0, 0.0]);
    }
}
