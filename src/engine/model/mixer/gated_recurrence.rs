//! The recurrent mixer of Griffin: a short convolution and a gated linear recurrence, times a second branch.

use std::borrow::Cow;

use super::memory::MixerMemory;
use super::parts::MixerPart;
use super::rows::each_copy;
use super::short_convolution::{Kernel, ShortConvolution};
use crate::error::Result;
use crate::kernels::recurrent::{GatedRecurrence, gated_recurrence};
use crate::model::context::BlockContext;
use crate::model::source::LinearSource;
use crate::model::weights::Shelf;
use crate::ops::{Activation, Ops};

/// A gated linear recurrence: out(recurrence(conv(x)) · act(y)). Padding counts like any token.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedRecurrenceSpec {
    pub x: LinearSource,
    pub y: LinearSource,
    pub convolution: ShortConvolution,
    pub activation: Activation,
    pub n_channels: usize,
    /// How many square maps on the diagonal each gate has.
    pub n_blocks: usize,
    /// Under this name: the gates' weights and biases, and what channels decay by.
    pub at: GateNames,
    pub o: LinearSource,
}

/// Tensors of the two gates, and of the decay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateNames {
    pub input_gate: String,
    pub input_bias: String,
    pub decay_gate: String,
    pub decay_bias: String,
    pub decay: String,
}

impl GatedRecurrenceSpec {
    /// Channels of one square map.
    fn width(&self) -> usize {
        self.n_channels / self.n_blocks.max(1)
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let (n, width, at) = (self.n_blocks, self.width(), &self.at);
        let mut parts = vec![MixerPart::Map("x", &self.x), MixerPart::Map("y", &self.y)];
        parts.extend(self.convolution.parts());
        let tensors = [
            ("input_gate", &at.input_gate, vec![n, width, width]),
            ("input_gate.bias", &at.input_bias, vec![n, width]),
            ("decay_gate", &at.decay_gate, vec![n, width, width]),
            ("decay_gate.bias", &at.decay_bias, vec![n, width]),
            ("decay", &at.decay, vec![self.n_channels]),
        ];
        parts.extend(tensors.map(|(name, tensor, shape)| MixerPart::Tensor(name, tensor, shape)));
        parts.push(MixerPart::Map("o", &self.o));
        parts
    }
}

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
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &GatedRecurrenceSpec) -> Result<Self> {
        let (n, width, at) = (spec.n_blocks, spec.width(), &spec.at);
        let tensor = |name: &String, shape: &[usize]| shelf.tensors.expect(name, shape)?.widen();
        Ok(Self {
            x: shelf.linear(&spec.x)?,
            y: shelf.linear(&spec.y)?,
            kernel: spec.convolution.read(shelf)?,
            input_gate: tensor(&at.input_gate, &[n, width, width])?,
            input_bias: tensor(&at.input_bias, &[n, width])?,
            decay_gate: tensor(&at.decay_gate, &[n, width, width])?,
            decay_bias: tensor(&at.decay_bias, &[n, width])?,
            decay: shelf.vector(&at.decay, spec.n_channels)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with what the recurrence adds. // from: [position, d_model]
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
