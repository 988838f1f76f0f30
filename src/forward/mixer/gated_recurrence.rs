//! The recurrent mixer of Griffin: a short convolution and a gated linear recurrence, times a second branch.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::{GatedRecurrence, gated_recurrence};
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::GatedRecurrenceSpec;

use super::memory::MixerMemory;
use super::rows::each_copy;
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of a gated recurrence.
pub struct GatedRecurrenceWeights<'a, O: Ops> {
    x: O::Linear<'a>,
    y: O::Linear<'a>,
    kernel: Kernel<'a>,
    input_gate: Cow<'a, [f32]>,
    input_bias: Cow<'a, [f32]>,
    decay_gate: Cow<'a, [f32]>,
    decay_bias: Cow<'a, [f32]>,
    decay: Cow<'a, [f32]>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> GatedRecurrenceWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &GatedRecurrenceSpec) -> Result<Self> {
        let (n, width, at) = (spec.n_blocks, spec.width(), &spec.at);
        let tensor = |name: &String, shape: &[usize]| shelf.tensors.expect(name, shape)?.widen();
        Ok(Self {
            x: shelf.linear(&spec.x)?,
            y: shelf.linear(&spec.y)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            input_gate: tensor(&at.input_gate, &[n, width, width])?,
            input_bias: tensor(&at.input_bias, &[n, width])?,
            decay_gate: tensor(&at.decay_gate, &[n, width, width])?,
            decay_bias: tensor(&at.decay_bias, &[n, width])?,
            decay: shelf.vector(&at.decay, spec.n_channels)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the recurrence. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &GatedRecurrenceSpec,
    weights: &GatedRecurrenceWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace, n) = (context.ops, context.pace, spec.n_channels);
    let (mut x, mut y) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(from, &weights.y, &mut y, pace)?; // [position, channel]
    ops.activate(spec.activation, &mut y)?;
    ops.linear(from, &weights.x, &mut x, pace)?; // [position, channel]
    let values = ops.get(&x)?.values.into_owned();
    let of = GatedRecurrence {
        n_blocks: spec.n_blocks,
        input_gate: &weights.input_gate,
        input_bias: &weights.input_bias,
        decay_gate: &weights.decay_gate,
        decay_bias: &weights.decay_bias,
        decay: &weights.decay,
    };
    let positions = &context.sequence.positions[context.n_past..];
    let read = each_copy(context, values.len() / n.max(1), memory, |rows, kept| {
        let mixed = weights
            .kernel
            .run(&mut kept.tail, &values[rows.start * n..rows.end * n]);
        gated_recurrence(of, &mixed, positions, &mut kept.state)
    }); // [position, channel]
    ops.put(&read, n, &mut x)?;
    ops.multiply(&mut x, &y)?;
    ops.linear(&x, &weights.o, to, pace) // [position, d_model]
}
