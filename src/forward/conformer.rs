//! The parts of a Conformer block that other blocks do not have: a feed-forward layer before attention, a convolution behind it.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::sigmoid;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, LabelGuess};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::mixer::{each_copy, without_padding};
use super::mlp::run_mlp;
use super::scratch::MlpScratch;
use super::weights::WeightReader;

/// Returns the residual that the attention of a block reads; `None` if it is the block's input.
///
/// # Errors
/// When a tensor differs from its spec, the pace stops it, or the device fails.
pub(super) fn before_attention<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    resid: &O::Buffer,
) -> Result<Option<O::Buffer>> {
    let Some(conformer) = spec.conformer.as_deref() else {
        return Ok(None);
    };
    let mut sum = O::Buffer::default();
    context.ops.copy(resid, &mut sum)?;
    add_before(context, conformer, &mut sum)?;
    Ok(Some(sum))
}

/// Adds what a classifier of labels says of each row. // resid: [position, d_model]
fn add_guess<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &LabelGuess,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut labels, mut back) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(resid, &shelf.linear(&spec.labels)?, &mut labels, pace)?; // [position, label]
    let mut rows = ops.get(&labels)?.values.into_owned();
    let n_labels = spec.labels.n_out();
    for row in rows.chunks_mut(n_labels.max(1)) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|v| f64::from(*v - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let shares = row.iter_mut().zip(&powers);
        shares.for_each(|(value, power)| *value = (power / sum) as f32);
    }
    ops.put(&rows, n_labels, &mut labels)?;
    ops.linear(&labels, &shelf.linear(&spec.back)?, &mut back, pace)?;
    ops.add(resid, &back)
}

/// Adds a guess of labels, if the block has one, and the output of the feed-forward layer before attention.
/// // resid: [position, d_model]
pub(super) fn add_before<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConformerSpec,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    if let Some(guess) = &spec.guess {
        add_guess(context, guess, resid)?;
    }
    let (mut normed, mut out) = (O::Buffer::default(), O::Buffer::default());
    ops.norm(resid, &shelf.norm(&spec.before_norm)?, &mut normed)?;
    let weights = MlpWeights::read(shelf, &spec.before)?;
    let mut s = MlpScratch::default();
    run_mlp(context, &spec.before, &weights, &normed, &mut s, &mut out)?;
    add_scaled(
        ops,
        resid,
        &mut out,
        [spec.before_factor, spec.before_scale],
    )
}

/// Adds the output of the convolution. // resid: [position, d_model]
pub(super) fn add_convolution<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionModule,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.norm(resid, &shelf.norm(&spec.pre)?, &mut from)?;
    ops.linear(&from, &shelf.linear(&spec.expand)?, &mut to, pace)?; // [position, 2 · channel]
    let n = spec.n_channels;
    let gated = gated(&ops.get(&to)?.values, n);
    ops.put(&gated, n, &mut from)?;
    let shown = without_padding(context, &from)?;
    let values = ops.get(shown.as_ref().unwrap_or(&from))?.values;
    let kernel = shelf.tensors.expect(&spec.kernel, &[n, 1, spec.n_wide])?;
    let kernel = kernel.widen()?; // [channel, n_wide]
    let bias = match &spec.kernel_bias {
        Some(name) => shelf.vector(name, n)?.into_owned(),
        None => vec![0.0; n],
    };
    let n_rows = values.len() / n.max(1);
    let mut sums = each_copy(context, n_rows, None, |rows, _| {
        let of_copy = &values[rows.start * n..rows.end * n];
        over_positions(spec, (&kernel, &bias), of_copy)
    }); // [position, channel]
    drop(values);
    match &spec.norm {
        ChannelNorm::Row(norm) => {
            ops.put(&sums, n, &mut to)?;
            ops.norm(&to, &shelf.norm(norm)?, &mut from)?;
        }
        ChannelNorm::Stored { tensors, eps } => {
            norm_by_stored(shelf, (tensors, *eps), n, &mut sums)?;
            ops.put(&sums, n, &mut from)?;
        }
    }
    ops.activate(spec.activation, &mut from)?;
    ops.linear(&from, &shelf.linear(&spec.out)?, &mut to, pace)?; // [position, d_model]
    add_scaled(ops, resid, &mut to, [spec.resid_factor, spec.scale])
}

/// Adds an output to the residual, each times a factor.
fn add_scaled<O: Ops>(
    ops: &O,
    resid: &mut O::Buffer,
    out: &mut O::Buffer,
    [of_resid, of_out]: [f32; 2],
) -> Result<()> {
    for (buffer, factor) in [(&mut *resid, of_resid), (&mut *out, of_out)] {
        if factor != 1.0 {
            ops.scale(buffer, factor)?;
        }
    }
    ops.add(resid, out)
}

/// The first half of each row times the sigmoid of the second. // [position, 2 · n] → [position, n]
pub(super) fn gated(rows: &[f32], n: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| -> Vec<f32> {
        let (values, gates) = row.split_at(n);
        let pairs = values.iter().zip(gates);
        pairs.map(|(value, gate)| value * sigmoid(*gate)).collect()
    };
    rows.chunks((2 * n).max(1)).flat_map(of_row).collect()
}

/// Convolves each channel over positions; those beyond the ends are zero. // values, result: [position, channel]
fn over_positions(
    spec: &ConvolutionModule,
    (kernel, bias): (&[f32], &[f32]),
    values: &[f32],
) -> Vec<f32> {
    let width = spec.n_channels.max(1);
    let n = values.len() / width;
    let mut sums = bias.repeat(n);
    for (position, sum) in sums.chunks_mut(width).enumerate() {
        for nth in 0..spec.n_wide {
            let at = (position + nth).checked_sub(spec.n_before);
            let Some(at) = at.filter(|at| *at < n) else {
                continue;
            };
            let weights = kernel[nth..].iter().step_by(spec.n_wide.max(1));
            let row = &values[at * width..][..width];
            for ((sum, value), weight) in sum.iter_mut().zip(row).zip(weights) {
                *sum += value * weight;
            }
        }
    }
    sums
}

/// Normalises each channel by its stored mean and variance. // rows: [position, channel]
fn norm_by_stored<O: Ops>(
    shelf: WeightReader<'_, O>,
    (tensors, eps): (&[String; 4], f64),
    n: usize,
    rows: &mut [f32],
) -> Result<()> {
    let [gain, bias, mean, variance] = tensors;
    let (gain, bias) = (shelf.vector(gain, n)?, shelf.vector(bias, n)?);
    let (mean, variance) = (shelf.vector(mean, n)?, shelf.vector(variance, n)?);
    let factor =
        |channel: usize| f64::from(gain[channel]) / (f64::from(variance[channel]) + eps).sqrt();
    let factors: Vec<f64> = (0..n).map(factor).collect();
    for row in rows.chunks_mut(n.max(1)) {
        for (channel, value) in row.iter_mut().enumerate() {
            let apart = f64::from(*value) - f64::from(mean[channel]);
            *value = (apart * factors[channel] + f64::from(bias[channel])) as f32;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_the_second_half_of_a_row() {
        let made = gated(&[3.0, 4.0, 0.0, 100.0, 1.0, 2.0, -100.0, 0.0], 2);
        assert_eq!(made, [1.5, 4.0, 0.0, 1.0]);
    }
}
