//! The parts of a Conformer block that other blocks do not have: a feed-forward layer before attention, a convolution behind it.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::activate;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, LabelGuess, NormSource,
};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::mixer::{each_copy, without_padding};
use super::mlp::run_mlp;
use super::scratch::MlpScratch;
use super::steps::normed_in_place;
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
    normed_or_as_it_is(context, &spec.before_norm, resid, &mut normed)?;
    let weights = MlpWeights::read(shelf, &spec.before)?;
    let mut s = MlpScratch::default();
    run_mlp(context, &spec.before, &weights, &normed, &mut s, &mut out)?;
    let norm = shelf.optional_norm(&spec.before_out)?;
    normed_in_place(ops, norm.as_ref(), &mut out, &mut normed)?;
    let factors = [spec.before_factor, spec.before_scale];
    add_scaled(ops, resid, &mut out, factors)?;
    normed_behind(context, &spec.before_post, resid)
}

/// Fills `to` with what a layer reads of the residual.
fn normed_or_as_it_is<O: Ops>(
    context: &BlockContext<'_, O>,
    norm: &Option<NormSource>,
    resid: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    match context.shelf().optional_norm(norm)? {
        Some(norm) => context.ops.norm(resid, &norm, to),
        None => context.ops.copy(resid, to),
    }
}

/// Applies a norm to the residual, if there is one.
pub(super) fn normed_behind<O: Ops>(
    context: &BlockContext<'_, O>,
    norm: &Option<NormSource>,
    resid: &mut O::Buffer,
) -> Result<()> {
    let norm = context.shelf().optional_norm(norm)?;
    normed_in_place(context.ops, norm.as_ref(), resid, &mut O::Buffer::default())
}

/// Adds the output of the convolution. // resid: [position, d_model]
pub(super) fn add_convolution<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionModule,
    resid: &mut O::Buffer,
) -> Result<()> {
    let mut out = convolved(context, spec, resid, 1)?;
    let factors = [spec.resid_factor, spec.scale];
    add_scaled(context.ops, resid, &mut out, factors)?;
    normed_behind(context, &spec.post, resid)
}

/// Makes one row of two: their mean, and the output of the convolution at the first of them. // [position, d_model] → [half as many, d_model]
pub(super) fn halve_rows<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionModule,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, n) = (context.ops, context.sequence.len());
    if n < 2 {
        let problem = format!(
            "the input is too short: a layer that makes one row of two is left with {n}, expected at least 2"
        );
        return Err(Error::Prompt(problem));
    }
    let mut out = convolved(context, spec, resid, 2)?;
    let halved = {
        let host = ops.get(resid)?;
        let width = host.width.max(1);
        let copies = host.values.chunks((context.sequence.len() * width).max(1));
        let pairs = copies.flat_map(|rows| rows.chunks_exact(2 * width));
        let mean = |pair: &[f32]| -> Vec<f32> {
            let (first, second) = pair.split_at(width);
            let both = first.iter().zip(second);
            both.map(|(a, b)| 0.5 * (a + b)).collect()
        };
        pairs.flat_map(mean).collect::<Vec<f32>>()
    };
    let width = ops.get(&out)?.width;
    ops.put_own(halved, width, resid)?;
    let factors = [spec.resid_factor, spec.scale];
    add_scaled(ops, resid, &mut out, factors)?;
    normed_behind(context, &spec.post, resid)
}

/// The output of the convolution at every position, or at the first of each `step` whole ones of a copy.
fn convolved<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionModule,
    resid: &O::Buffer,
    step: usize,
) -> Result<O::Buffer> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    normed_or_as_it_is(context, &spec.pre, resid, &mut from)?;
    ops.linear(&from, &shelf.linear(&spec.expand)?, &mut to, pace)?; // [position, 2 · channel]
    let n = spec.n_channels;
    let mut halves = ops.get(&to)?.values.into_owned();
    if let Some(biases) = &spec.gate_biases {
        let of_half = |name: &String| shelf.tensors.expect(name, &[1, n, 1])?.widen();
        let both = [of_half(&biases[0])?, of_half(&biases[1])?].concat();
        for row in halves.chunks_mut(both.len().max(1)) {
            let pairs = row.iter_mut().zip(&both);
            pairs.for_each(|(value, bias)| *value += bias);
        }
    }
    ops.put(&gated(&halves, n, spec.gate), n, &mut from)?;
    let shown = without_padding(context, &from)?;
    let values = ops.get(shown.as_ref().unwrap_or(&from))?.values;
    let kernel = shelf.tensors.expect(&spec.kernel, &[n, 1, spec.n_wide])?;
    let kernel = kernel.widen()?;
    let bias = match &spec.kernel_bias {
        Some(name) => shelf.vector(name, n)?.into_owned(),
        None => vec![0.0; n],
    };
    let kernel = Kernel {
        weights: &kernel,
        n_wide: spec.n_wide,
        n_before: spec.n_before,
    };
    let n_rows = values.len() / n.max(1);
    let mut sums = each_copy(context, n_rows, None, |rows, _| {
        let of_copy = &values[rows.start * n..rows.end * n];
        over_positions(&kernel, n, of_copy, bias.repeat(rows.len()))
    }); // [position, channel]
    drop(values);
    if step > 1 {
        let of_copy = (context.sequence.len() * n).max(1);
        let firsts = sums.chunks(of_copy).flat_map(|rows| {
            let whole = rows.chunks_exact((step * n).max(1));
            whole.flat_map(|rows| rows[..n].iter().copied())
        });
        sums = firsts.collect();
    }
    if let Some(map) = &spec.mixed {
        ops.put(&sums, n, &mut from)?;
        ops.linear(&from, &shelf.linear(map)?, &mut to, pace)?;
        sums = ops.get(&to)?.values.into_owned();
    }
    match &spec.norm {
        ChannelNorm::None => ops.put(&sums, n, &mut from)?,
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
    Ok(to)
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

/// The first half of each row times a function of the second. // [position, 2 · n] → [position, n]
pub(super) fn gated(rows: &[f32], n: usize, function: Activation) -> Vec<f32> {
    let rows = rows.chunks((2 * n).max(1));
    let mut gated: Vec<f32> = rows.clone().flat_map(|row| &row[n..]).copied().collect();
    activate(function, &mut gated);
    let values = rows.flat_map(|row| &row[..n]);
    let pairs = gated.iter_mut().zip(values);
    pairs.for_each(|(gate, value)| *gate *= value);
    gated
}

/// Kernels of channels over positions.
pub(super) struct Kernel<'a> {
    /// [channel, n_wide]
    pub weights: &'a [f32],
    pub n_wide: usize,
    /// Number of earlier positions that a kernel covers.
    pub n_before: usize,
}

/// Adds the convolution of each channel over positions to `sums`; positions beyond the ends are zero. // values, sums, result: [position, channel]
pub(super) fn over_positions(
    kernel: &Kernel<'_>,
    n_channels: usize,
    values: &[f32],
    mut sums: Vec<f32>,
) -> Vec<f32> {
    let width = n_channels.max(1);
    let n = values.len() / width;
    for (position, sum) in sums.chunks_mut(width).enumerate() {
        for nth in 0..kernel.n_wide {
            let at = (position + nth).checked_sub(kernel.n_before);
            let Some(at) = at.filter(|at| *at < n) else {
                continue;
            };
            let weights = kernel.weights[nth..].iter();
            let weights = weights.step_by(kernel.n_wide.max(1));
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
        let rows = [3.0, 4.0, 0.0, 100.0, 1.0, 2.0, -100.0, 0.0];
        let made = gated(&rows, 2, Activation::Sigmoid);
        for (found, expected) in made.iter().zip([1.5, 4.0, 0.0, 1.0]) {
            assert!((found - expected).abs() < 1e-6, "{made:?}");
        }
        assert_eq!(gated(&rows, 2, Activation::Identity)[..2], [0.0, 400.0]);
    }
}
