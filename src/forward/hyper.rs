//! Hyper-connections: a branch reads a weighted sum of the residual streams and writes its output back to all of them.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::sigmoid;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_compute::pace::Pace;
use attnscope_spec::{
    BlockSpec, ConnectionSpec, FoldSpec, GatedConnection, HyperSpec, StreamGates, StreamWeights,
    WeightedConnection,
};

use super::context::BlockContext;
use super::scratch::AttentionScratch;
use super::weights::WeightReader;

/// The streams while a branch runs that read them, and how its output will join them.
pub(super) struct OpenStreams {
    n: usize,
    d_model: usize,
    /// [row, n · d_model]
    pub streams: Vec<f32>,
    /// Weight of the branch's output in each stream. // [row, n]
    post: Vec<f32>,
    /// Weight of each stream (row) in each stream behind the branch (column); empty where each goes on by itself. // [row, n · n]
    across: Vec<f32>,
}

impl OpenStreams {
    /// Computes all weights of a branch from the streams, and puts what the branch reads into `to`. // streams: [row, n · d_model]
    pub fn read<O: Ops>(
        spec: &ConnectionSpec,
        context: &BlockContext<'_, O>,
        sizes: (usize, usize),
        streams: Vec<f32>,
        to: &mut O::Buffer,
    ) -> Result<Self> {
        match spec {
            ConnectionSpec::Weighted(spec) => {
                Self::read_weighted(spec, context, sizes, streams, to)
            }
            ConnectionSpec::Gated(spec) => Self::read_gated(spec, context, sizes, streams, to),
        }
    }

    /// The same for columns that have gates.
    fn read_gated<O: Ops>(
        spec: &GatedConnection,
        context: &BlockContext<'_, O>,
        (n, d_model): (usize, usize),
        streams: Vec<f32>,
        to: &mut O::Buffer,
    ) -> Result<Self> {
        let (ops, pace) = (context.ops, context.pace);
        let at = (ops, context.tensors, pace);
        let normed = normed_streams(at, &spec.gates, (n, d_model), &streams)?;
        let sum = gated_mean(at, &spec.gates, (n, d_model), &normed)?;
        ops.put(&sum, d_model, to)?;
        let (mut all, mut mapped) = (O::Buffer::default(), O::Buffer::default());
        ops.put_own(normed, n * d_model, &mut all)?;
        let inject = context.shelf().linear(&spec.inject)?;
        ops.linear(&all, &inject, &mut mapped, pace)?; // [row, n]
        let mapped = ops.get(&mapped)?;
        let written = |v: &f32| 2.0 * sigmoid(v / n as f32);
        Ok(Self {
            n,
            d_model,
            streams,
            post: mapped.values.iter().map(written).collect(),
            across: Vec::new(),
        })
    }

    /// The same for streams that have one weight each.
    fn read_weighted<O: Ops>(
        spec: &WeightedConnection,
        context: &BlockContext<'_, O>,
        (n, d_model): (usize, usize),
        streams: Vec<f32>,
        to: &mut O::Buffer,
    ) -> Result<Self> {
        let at = (context.ops, context.tensors, context.pace);
        let weights = &spec.weights;
        let all = outputs(at, weights, (n, spec.n_scales()), &streams)?;
        let (mut pre, mut post, mut across) = (Vec::new(), Vec::new(), Vec::new());
        for row in all.chunks(weights.map.n_out().max(1)) {
            let (of_pre, rest) = row.split_at(n);
            let (of_post, of_streams) = rest.split_at(n);
            pre.extend(of_pre.iter().map(|v| sigmoid(*v) + weights.least));
            let written = |v: &f32| spec.magnitude * sigmoid(*v) + spec.least_post;
            post.extend(of_post.iter().map(written));
            if let Some(rounds) = spec.rounds {
                let mut shares = of_streams.to_vec();
                balance(&mut shares, n, rounds, weights.least);
                across.extend_from_slice(&shares);
            }
        }
        let sum = sum_of((n, d_model), &streams, &pre);
        context.ops.put(&sum, d_model, to)?;
        Ok(Self {
            n,
            d_model,
            streams,
            post,
            across,
        })
    }

    /// The streams behind a branch, given its output. // out: [row, d_model]; result: [row, n · d_model]
    fn write(&self, out: &[f32]) -> Vec<f32> {
        let (n, d_model) = (self.n, self.d_model);
        let width = (n * d_model).max(1);
        let mut behind = if self.across.is_empty() {
            self.streams.clone()
        } else {
            let mut mixed = vec![0.0; self.streams.len()];
            let rows = mixed.chunks_mut(width).zip(self.streams.chunks(width));
            for ((to, from), shares) in rows.zip(self.across.chunks(n * n)) {
                for (from, shares) in from.chunks(d_model).zip(shares.chunks(n)) {
                    add_weighted(to, d_model, from, shares);
                }
            }
            mixed
        };
        let rows = behind.chunks_mut(width).zip(out.chunks(d_model.max(1)));
        for ((to, out), post) in rows.zip(self.post.chunks(n)) {
            add_weighted(to, d_model, out, post);
        }
        behind
    }

    /// Repeats all rows, once per copy of the sequence.
    pub fn repeat(&mut self, copies: usize) {
        for values in [&mut self.streams, &mut self.post, &mut self.across] {
            *values = values.repeat(copies);
        }
    }
}

/// Adds values to each stream of a row, times a weight for each. // to: [n · d_model]; values: [d_model]; weights: [n]
fn add_weighted(to: &mut [f32], d_model: usize, values: &[f32], weights: &[f32]) {
    for (to, weight) in to.chunks_mut(d_model.max(1)).zip(weights) {
        to.iter_mut()
            .zip(values)
            .for_each(|(to, v)| *to += weight * v);
    }
}

/// Sums the streams of each row, each times its weight. // streams: [row, n · d_model]; weights: [row, n]; result: [row, d_model]
fn sum_of((n, d_model): (usize, usize), streams: &[f32], weights: &[f32]) -> Vec<f32> {
    let d_model = d_model.max(1);
    let mut sums = vec![0.0; streams.len() / n.max(1)];
    let rows = sums.chunks_mut(d_model).zip(streams.chunks(n * d_model));
    for ((to, row), weights) in rows.zip(weights.chunks(n)) {
        for (stream, weight) in row.chunks(d_model).zip(weights) {
            to.iter_mut()
                .zip(stream)
                .for_each(|(to, v)| *to += weight * v);
        }
    }
    sums
}

/// Softmax over the rows of a matrix, then columns and rows divided by their sums in turn. // [n · n]
fn balance(shares: &mut [f32], n: usize, rounds: usize, least: f32) {
    for row in shares.chunks_mut(n) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|v| *v = (*v - largest).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|v| *v = *v / sum + least);
    }
    for round in 0..rounds {
        if round > 0 {
            for row in shares.chunks_mut(n) {
                let sum = row.iter().sum::<f32>() + least;
                row.iter_mut().for_each(|v| *v /= sum);
            }
        }
        for column in 0..n {
            let all = |shares: &[f32]| shares.iter().skip(column).step_by(n).sum::<f32>();
            let sum = all(shares) + least;
            let of_column = shares.iter_mut().skip(column).step_by(n);
            of_column.for_each(|v| *v /= sum);
        }
    }
}

/// What weights are made of, before sigmoids and softmaxes. // streams: [row, n · d_model]; result: [row, weight]
fn outputs<O: Ops>(
    at: (&O, &Tensors, &dyn Pace),
    weights: &StreamWeights,
    (n, n_scales): (usize, usize),
    streams: &[f32],
) -> Result<Vec<f32>> {
    let (ops, tensors, pace) = at;
    let shelf = WeightReader::new(ops, tensors, pace);
    let (width, n_all) = (weights.map.n_in, weights.map.n_out());
    let (mut all, mut mapped) = (O::Buffer::default(), O::Buffer::default());
    ops.put(streams, width, &mut all)?;
    ops.linear(&all, &shelf.linear(&weights.map)?, &mut mapped, pace)?;
    let scale = shelf.vector(&weights.scale, n_scales)?;
    let base = shelf.vector(&weights.base, n_all)?;
    let mut out = ops.get(&mapped)?.values.into_owned();
    let rows = out.chunks_mut(n_all.max(1));
    for (row, streams) in rows.zip(streams.chunks(width.max(1))) {
        let squares: f64 = streams.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        let mean = squares / width.max(1) as f64;
        let by = (1.0 / (mean + f64::from(weights.eps)).sqrt()) as f32;
        for (idx, value) in row.iter_mut().enumerate() {
            let kind = (idx / n.max(1)).min(n_scales - 1);
            *value = *value * by * scale[kind] + base[idx];
        }
    }
    Ok(out)
}

/// Each stream divided by its root mean square, times its gain. // streams, result: [row, n · d_model]
fn normed_streams<O: Ops>(
    (ops, tensors, pace): (&O, &Tensors, &dyn Pace),
    gates: &StreamGates,
    (n, d_model): (usize, usize),
    streams: &[f32],
) -> Result<Vec<f32>> {
    let shelf = WeightReader::new(ops, tensors, pace);
    let gain = shelf.vector(&gates.gain, n * d_model)?;
    let mut normed = streams.to_vec();
    for (nth, stream) in normed.chunks_mut(d_model.max(1)).enumerate() {
        let squares: f64 = stream.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        let mean = squares / d_model.max(1) as f64;
        let by = (1.0 / (mean + f64::from(gates.eps)).sqrt()) as f32;
        let gain = &gain[nth % n.max(1) * d_model..][..d_model];
        let columns = stream.iter_mut().zip(gain);
        columns.for_each(|(value, gain)| *value = *value * by * (1.0 + gain));
    }
    Ok(normed)
}

/// The mean of normed streams, each column times its gate. // normed: [row, n · d_model]; result: [row, d_model]
fn gated_mean<O: Ops>(
    (ops, tensors, pace): (&O, &Tensors, &dyn Pace),
    gates: &StreamGates,
    (n, d_model): (usize, usize),
    normed: &[f32],
) -> Result<Vec<f32>> {
    let shelf = WeightReader::new(ops, tensors, pace);
    let share = 1.0 / n.max(1) as f32;
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.put(normed, n * d_model, &mut from)?;
    ops.linear(&from, &shelf.linear(&gates.down)?, &mut to, pace)?;
    ops.scale(&mut to, share)?;
    ops.activate(Activation::Silu, &mut to)?;
    ops.linear(&to, &shelf.linear(&gates.up)?, &mut from, pace)?; // [row, n · d_model]
    let mut open = ops.get(&from)?.values.into_owned();
    let pairs = open.iter_mut().zip(normed);
    pairs.for_each(|(gate, value)| *gate = sigmoid(*gate) * value);
    let n_rows = normed.len() / (n * d_model).max(1);
    Ok(sum_of((n, d_model), &open, &vec![share; n_rows * n]))
}

/// Makes one residual of all streams. // streams: [row, n · d_model]; result: [row, d_model]
pub(super) fn fold<O: Ops>(
    spec: &FoldSpec,
    at: (&O, &Tensors, &dyn Pace),
    (n, d_model): (usize, usize),
    streams: &[f32],
) -> Result<Vec<f32>> {
    let shares = match spec {
        FoldSpec::Gated(gates) => {
            let normed = normed_streams(at, gates, (n, d_model), streams)?;
            return gated_mean(at, gates, (n, d_model), &normed);
        }
        FoldSpec::Mean => {
            let n_rows = streams.len() / (n * d_model).max(1);
            vec![1.0 / n as f32; n_rows * n]
        }
        FoldSpec::Weighted(weights) => {
            let mut shares = outputs(at, weights, (n, 1), streams)?;
            let weigh = |v: &mut f32| *v = sigmoid(*v) + weights.least;
            shares.iter_mut().for_each(weigh);
            shares
        }
    };
    Ok(sum_of((n, d_model), streams, &shares))
}

/// The hyper-connections of a block, if it has them.
fn of_block(spec: &BlockSpec) -> Option<&HyperSpec> {
    spec.row.as_ref()?.connected()
}

/// Writes the output of attention to all streams, and puts what the feed-forward layer reads into `resid`; false in a block without
/// hyper-connections.
pub(super) fn between<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    s: &mut AttentionScratch<O>,
    resid: &mut O::Buffer,
) -> Result<bool> {
    let (Some(hyper), Some(open)) = (of_block(spec), s.open.take()) else {
        return Ok(false);
    };
    let streams = open.write(&context.ops.get(&s.out)?.values);
    let of_mlp = &hyper.branches[1];
    let open = OpenStreams::read(of_mlp, context, (hyper.n, open.d_model), streams, resid)?;
    s.open = Some(open);
    Ok(true)
}

/// Writes the output of the feed-forward layer to all streams, which `s` keeps, and puts their fold into `resid`; false in a block
/// without hyper-connections.
pub(super) fn behind<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    (out, s): (&O::Buffer, &mut AttentionScratch<O>),
    resid: &mut O::Buffer,
) -> Result<bool> {
    let (Some(hyper), Some(open)) = (of_block(spec), s.open.as_mut()) else {
        return Ok(false);
    };
    open.streams = open.write(&context.ops.get(out)?.values);
    let at = (context.ops, context.tensors, context.pace);
    let folded = fold(&hyper.fold, at, (hyper.n, open.d_model), &open.streams)?;
    context.ops.put(&folded, open.d_model, resid)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_of_balanced_shares_sum_to_one() {
        let mut shares = vec![0.3, -2.0, 1.5, 0.0, 0.7, -0.4, 2.0, 0.1, -1.0];
        balance(&mut shares, 3, 20, 1e-6);
        for idx in 0..3 {
            let row: f32 = shares[3 * idx..3 * idx + 3].iter().sum();
            let column: f32 = shares.iter().skip(idx).step_by(3).sum();
            assert!(
                (row - 1.0).abs() < 1e-4 && (column - 1.0).abs() < 1e-4,
                "{shares:?}"
            );
        }
        assert!(shares[2] > shares[0], "{shares:?}");
    }

    #[test]
    fn an_output_and_the_streams_join_by_their_weights() {
        let open = OpenStreams {
            n: 2,
            d_model: 2,
            streams: vec![1.0, 2.0, 10.0, 20.0],
            post: vec![0.5, 2.0],
            // All of the first stream goes on in the second, and half of the second in the first.
            across: vec![0.0, 1.0, 0.5, 0.0],
        };
        assert_eq!(open.write(&[4.0, 6.0]), [7.0, 13.0, 9.0, 14.0]);
        let alone = OpenStreams {
            across: Vec::new(),
            ..open
        };
        assert_eq!(alone.write(&[4.0, 6.0]), [3.0, 5.0, 18.0, 32.0]);
    }
}
