//! Turns the last residual into logits in chunks of the vocabulary, so positions × vocabulary is never held at once.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::ops::{HostLinear, HostWeight, Ops};
use attnscope_compute::pace::Pace;
use attnscope_spec::{HeadSpec, Model, Pooled, StackSpec, WeightFormat};

use super::embed::apply_norm;
use super::rounded::round_read;
use super::sequence::Sequence;
use super::weights::{WeightReader, read_linear_rows};
use super::{attention_pooling, rows};

/// Number of values per chunk, both of logits over all requested positions and of their weights: 4 MiB each.
const CHUNK_VALUES: usize = 1 << 20;

/// Applies the final norm, if there is one, to the residual part of rows. // [position, d_model]
///
/// # Errors
/// When a tensor differs from its spec, or the device fails.
pub fn final_hidden<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    resid: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let mut main = None;
    if let Some(rows) = &stack.rows {
        let main = main.insert(O::Buffer::default());
        rows::end((ops, &model.checkpoint.tensors), rows, resid, main)?;
    }
    let resid = main.as_ref().unwrap_or(resid);
    let mut others = O::Buffer::default();
    let resid = match stack.embed.joined.as_deref() {
        Some(joined) => {
            let host = ops.get(resid)?;
            let (width, first) = (host.width, joined.n * host.width);
            let values = host.values.get(first..).unwrap_or_default().to_vec();
            drop(host);
            ops.put_own(values, width, &mut others)?;
            &others
        }
        None => resid,
    };
    match &stack.final_norm {
        Some(norm) => apply_norm(ops, model, norm, resid, to)?,
        None => ops.copy(resid, to)?,
    }
    let Some(map) = &stack.last_map else {
        return Ok(());
    };
    let pace = &|| false;
    let map = WeightReader::new(ops, &model.checkpoint.tensors, pace).linear(map)?;
    let mut mapped = O::Buffer::default();
    ops.linear(to, &map, &mut mapped, pace)?;
    *to = mapped;
    Ok(())
}

/// Replaces the last hidden states with the head's pooled input, for heads that read several positions.
///
/// # Errors
/// When the device fails.
pub fn pool_hidden<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    sequence: &Sequence,
    hidden: &mut O::Buffer,
) -> Result<()> {
    let Some(labels) = &head.labels else {
        return Ok(());
    };
    if let Some(pooling) = head.pooling.as_deref() {
        let row = attention_pooling::row(ops, model, pooling, sequence, hidden)?;
        return ops.put(&row.repeat(sequence.len()), row.len(), hidden);
    }
    if labels.pooled == Pooled::MeanOfOutputs
        && let Some(of_each) = transformed(ops, model, head, hidden, &|| false)?
    {
        *hidden = of_each;
    }
    // The last stage of a model has other rows than the prompt.
    let is_staged = model.spec.main_stack().is_staged();
    let host = match labels.pooled {
        Pooled::First if is_staged => ops.get(hidden)?,
        Pooled::Every
        | Pooled::First
        | Pooled::Last(_)
        | Pooled::LastOf(_)
        | Pooled::FirstOf(_)
        | Pooled::Highest => return norm_pooled(ops, model, head, hidden),
        _ => ops.get(hidden)?,
    };
    let (width, n) = (host.width.max(1), sequence.len());
    let row = |idx: usize| host.values.chunks(width).nth(idx).unwrap_or_default();
    let mean = |from: usize| mean_of_real(&host.values, width, sequence, from);
    let pooled = match labels.pooled {
        Pooled::FirstAndMeanFrom(from) => [row(0), &mean(from)].concat(),
        Pooled::First => row(0).to_vec(),
        Pooled::FirstTwo => [row(0), row(1)].concat(),
        Pooled::MeanFrom(from) => mean(from),
        Pooled::Max => largest_of_real(&host.values, width, sequence),
        _ => mean(0),
    };
    ops.put(&pooled.repeat(n), pooled.len(), hidden)?;
    norm_pooled(ops, model, head, hidden)
}

/// Applies the norm of what is pooled to every row.
fn norm_pooled<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    hidden: &mut O::Buffer,
) -> Result<()> {
    let Some(norm) = &head.pooled_norm else {
        return Ok(());
    };
    let mut normed = O::Buffer::default();
    apply_norm(ops, model, norm, hidden, &mut normed)?;
    *hidden = normed;
    Ok(())
}

/// Applies a head's own layers to rows; `None` if it has none.
fn transformed<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    hidden: &O::Buffer,
    pace: &dyn Pace,
) -> Result<Option<O::Buffer>> {
    let Some(transform) = &head.transform else {
        return Ok(None);
    };
    let tensors = &model.checkpoint.tensors;
    let mut last = None;
    for layer in transform.layers() {
        let from = last.as_ref().unwrap_or(hidden);
        let mut wide = O::Buffer::default();
        let dense = WeightReader::new(ops, tensors, pace).linear(&layer.dense)?;
        ops.linear(from, &dense, &mut wide, pace)?;
        if let Some(activation) = layer.activation {
            ops.activate(activation, &mut wide)?;
        }
        if let Some(norm) = &layer.norm {
            let mut normed = O::Buffer::default();
            apply_norm(ops, model, norm, &wide, &mut normed)?;
            wide = normed;
        }
        last = Some(wide);
    }
    Ok(last)
}

/// Returns the mean over real tokens from index `from` on. // [width]
fn mean_of_real(hidden: &[f32], width: usize, sequence: &Sequence, from: usize) -> Vec<f32> {
    let mut sum = vec![0.0f64; width];
    let mut n_real = 0;
    let rows = hidden.chunks(width).enumerate().skip(from);
    for (_, row) in rows.filter(|(idx, _)| sequence.is_real(*idx)) {
        n_real += 1;
        sum.iter_mut()
            .zip(row)
            .for_each(|(sum, value)| *sum += f64::from(*value));
    }
    sum.iter()
        .map(|sum| (sum / f64::from(n_real.max(1))) as f32)
        .collect()
}

/// Returns the largest value of each component over real tokens. // [width]
fn largest_of_real(hidden: &[f32], width: usize, sequence: &Sequence) -> Vec<f32> {
    let mut largest: Option<Vec<f32>> = None;
    let rows = hidden.chunks(width).enumerate();
    for (_, row) in rows.filter(|(idx, _)| sequence.is_real(*idx)) {
        match &mut largest {
            None => largest = Some(row.to_vec()),
            Some(largest) => largest.iter_mut().zip(row).for_each(|(most, value)| {
                // What is not a number is the result, as in PyTorch.
                if *value > *most || value.is_nan() {
                    *most = *value;
                }
            }),
        }
    }
    largest.unwrap_or_else(|| vec![0.0; width])
}

/// Computes the logits of every position and passes them on chunk by chunk.
///
/// `each` receives a range of the vocabulary and its logits. // [position, range]
///
/// # Errors
/// When a tensor differs from its spec, the device fails, or the pace or `each` stops it.
pub fn logits_in_chunks<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    hidden: &O::Buffer,
    n_positions: usize,
    pace: &dyn Pace,
    mut each: impl FnMut(Range<usize>, &[f32]) -> Result<()>,
) -> Result<()> {
    let mut unembedding = Unembedding::new(ops, model, head, hidden, n_positions, pace)?;
    for range in unembedding.ranges() {
        let logits = unembedding.logits(range.clone())?;
        each(range, &logits)?;
    }
    Ok(())
}

/// The language-model head applied to the last hidden states, queried by range of the vocabulary.
pub struct Unembedding<'a, O: Ops> {
    ops: &'a O,
    model: &'a Model,
    head: &'a HeadSpec,
    pace: &'a dyn Pace,
    hidden: &'a O::Buffer,
    /// Output of the head's own layer, if it has one.
    transformed: Option<O::Buffer>,
    extra_bias: Option<Cow<'a, [f32]>>,
    n_positions: usize,
    logits: O::Buffer,
}

impl<'a, O: Ops> Unembedding<'a, O> {
    /// Runs the head's steps before the vocabulary matrix. // hidden: [position, d_model]
    ///
    /// # Errors
    /// When a tensor differs from its spec, the device fails, or the pace stops it.
    pub fn new(
        ops: &'a O,
        model: &'a Model,
        head: &'a HeadSpec,
        hidden: &'a O::Buffer,
        n_positions: usize,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let tensors = &model.checkpoint.tensors;
        // Where the head averages after its layer, the hidden states have already been through that layer.
        let is_through = head
            .labels
            .as_ref()
            .is_some_and(|labels| labels.pooled == Pooled::MeanOfOutputs);
        let transformed = if is_through {
            None
        } else {
            transformed(ops, model, head, hidden, pace)?
        };
        let extra_bias = match &head.extra_bias {
            Some(name) => {
                let stored = tensors.expect(name, &[head.unembed.n_out()])?.widen()?;
                let format = head.unembed.rounded.and_then(WeightFormat::number);
                Some(round_read(stored, format))
            }
            None => None,
        };
        Ok(Self {
            ops,
            model,
            head,
            pace,
            hidden,
            transformed,
            extra_bias,
            n_positions,
            logits: O::Buffer::default(),
        })
    }

    /// Splits the vocabulary into ranges whose logits fit in a chunk; the ranges are the same on every device.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<O> {
        let d_vocab = self.head.unembed.n_out();
        let per_row = self.n_positions.max(self.head.unembed.n_in).max(1);
        let n_chunk = (CHUNK_VALUES / per_row).clamp(64, d_vocab.max(64));
        let starts = (0..d_vocab).step_by(n_chunk);
        starts.map(move |start| start..(start + n_chunk).min(d_vocab))
    }

    /// Computes the logits of every position for a range of the vocabulary. // [position, range]
    ///
    /// # Errors
    /// When a tensor differs from its spec, the device fails, or the pace stops it.
    pub fn logits(&mut self, range: Range<usize>) -> Result<Cow<'_, [f32]>> {
        let weights = self.weights(range.clone())?;
        let from = self.transformed.as_ref().unwrap_or(self.hidden);
        self.ops
            .linear(from, &weights, &mut self.logits, self.pace)?; // [position, range]
        let values = self.ops.get(&self.logits)?.values;
        Ok(finished(
            self.head,
            self.extra_bias.as_deref(),
            range,
            values,
        ))
    }

    /// Reads the weights of a range of the vocabulary, for any number of prompts.
    ///
    /// # Errors
    /// When a tensor differs from its spec, the device fails, or the pace stops it.
    pub fn weights(&self, range: Range<usize>) -> Result<O::Linear<'a>> {
        let tensors = &self.model.checkpoint.tensors;
        let (head, pace) = (self.head, self.pace);
        let takes_bf16 = self.ops.takes_bf16() && head.second.is_none() && head.pooling.is_none();
        let host = read_linear_rows(tensors, &head.unembed, range.clone(), takes_bf16, pace)?;
        let host = match &head.second {
            Some(second) => {
                let second = read_linear_rows(tensors, second, range, false, pace)?;
                mean_of_both(&host, &second)
            }
            None if head.pooling.is_some() => {
                attention_pooling::and_itself(&host, range, head.unembed.n_out())
            }
            None => host,
        };
        self.ops.linear_weights(host)
    }

    /// Computes the logits of every position for a range of the vocabulary from its weights. // [position, range]
    ///
    /// # Errors
    /// When the device fails, or the pace stops it.
    pub fn logits_of<'b>(
        &self,
        weights: &O::Linear<'_>,
        range: Range<usize>,
        to: &'b mut O::Buffer,
    ) -> Result<Cow<'b, [f32]>> {
        let from = self.transformed.as_ref().unwrap_or(self.hidden);
        self.ops.linear(from, weights, to, self.pace)?; // [position, range]
        let values = self.ops.get(to)?.values;
        Ok(finished(
            self.head,
            self.extra_bias.as_deref(),
            range,
            values,
        ))
    }
}

/// Combines two maps of one token each into one map of both, whose outputs are their mean.
fn mean_of_both<'a>(first: &HostLinear<'_>, second: &HostLinear<'_>) -> HostLinear<'a> {
    let (a, b) = (first.widened(), second.widened());
    let rows = a
        .chunks(first.n_in.max(1))
        .zip(b.chunks(second.n_in.max(1)));
    let both = rows.flat_map(|(a, b)| a.iter().chain(b).map(|v| 0.5 * v).collect::<Vec<f32>>());
    let bias = |idx: usize| {
        let biases = [first, second].map(|map| map.bias.as_ref().map_or(0.0, |bias| bias[idx]));
        0.5 * (biases[0] + biases[1])
    };
    HostLinear {
        n_out: first.n_out,
        n_in: first.n_in + second.n_in,
        weight: HostWeight::F32(Cow::Owned(both.collect())),
        is_input_major: false,
        bias: Some((0..first.n_out).map(bias).collect()),
        grams: Default::default(),
    }
}

/// Reads the weights of a range of the vocabulary, in a layout for multiplying a few rows many times.
///
/// # Errors
/// As for [`Unembedding::weights`].
pub fn unembedding_for_few_rows<'a, O: Ops>(
    ops: &'a O,
    model: &'a Model,
    head: &HeadSpec,
    range: Range<usize>,
    pace: &dyn Pace,
) -> Result<O::Linear<'a>> {
    let tensors = &model.checkpoint.tensors;
    let host = read_linear_rows(tensors, &head.unembed, range, ops.takes_bf16(), pace)?;
    ops.linear_weights(ops.for_few_rows(host))
}

/// Turns raw products into logits. // values: [position, range]
fn finished<'b>(
    head: &HeadSpec,
    bias: Option<&[f32]>,
    range: Range<usize>,
    mut values: Cow<'b, [f32]>,
) -> Cow<'b, [f32]> {
    let is_plain = head.scale == 1.0 && head.softcap.is_none() && bias.is_none();
    if !is_plain {
        let bias = bias.map(|bias| &bias[range.clone()]);
        finish(head, bias, range.len(), values.to_mut());
    }
    values
}

/// Applies scale, cap and bias to one chunk. // values: [position, range]
fn finish(head: &HeadSpec, bias: Option<&[f32]>, width: usize, values: &mut [f32]) {
    for row in values.chunks_mut(width) {
        for value in row.iter_mut() {
            *value *= head.scale;
            if let Some(cap) = head.softcap {
                *value = cap * (*value / cap).tanh();
            }
        }
        if let Some(bias) = bias {
            row.iter_mut().zip(bias).for_each(|(value, b)| *value += b);
        }
    }
}
