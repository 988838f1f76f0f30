//! The mixer of Mamba-2: a short convolution, a state space of heads, and a gate with a norm.

use std::borrow::Cow;

use super::memory::MixerMemory;
use super::parts::{GatedNormSource, MixerPart};
use super::rows::{apart, beside, each_copy, hide_padding, mapped};
use super::short_convolution::{Kernel, ShortConvolution};
use crate::error::Result;
use crate::kernels::activate;
use crate::kernels::recurrent::{GatedNorm, StateSpace, StateSpaceTokens, softplus, state_space};
use crate::model::context::BlockContext;
use crate::model::source::LinearSource;
use crate::model::weights::Shelf;
use crate::ops::{Activation, Ops};

/// A state space of heads: out(norm(scan(act(conv(x, b, c)), steps), gate)).
#[derive(Debug, Clone, PartialEq)]
pub struct StateSpaceSpec {
    pub gate: LinearSource,
    pub x: LinearSource,
    /// What is written along.
    pub b: LinearSource,
    /// What is read along.
    pub c: LinearSource,
    pub steps: LinearSource,
    /// Over x, b and c, side by side.
    pub convolution: ShortConvolution,
    pub activation: Activation,
    /// The logarithm of how fast a head decays. // [head]
    pub log_decay: String,
    /// [head]
    pub skip: String,
    /// Added to steps before the softplus. // [head]
    pub step_bias: String,
    /// The shortest and the longest step, after the softplus.
    pub step_limits: [f32; 2],
    pub n_heads: usize,
    pub d_head: usize,
    pub n_groups: usize,
    pub d_state: usize,
    /// Beside the gate; the gate alone where there is none.
    pub norm: Option<GatedNormSource>,
    pub o: LinearSource,
}

impl StateSpaceSpec {
    /// Channels of all heads.
    pub fn n_inner(&self) -> usize {
        self.n_heads * self.d_head
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let maps = [
            ("gate", &self.gate),
            ("x", &self.x),
            ("b", &self.b),
            ("c", &self.c),
            ("steps", &self.steps),
        ];
        let mut parts = Vec::from(maps.map(|(name, map)| MixerPart::Map(name, map)));
        parts.extend(self.convolution.parts());
        let by_head = [
            ("log_decay", &self.log_decay),
            ("skip", &self.skip),
            ("step_bias", &self.step_bias),
        ];
        let n = self.n_heads;
        parts.extend(by_head.map(|(name, tensor)| MixerPart::Tensor(name, tensor, vec![n])));
        parts.extend(self.norm.as_ref().map(GatedNormSource::part));
        parts.push(MixerPart::Map("o", &self.o));
        parts
    }
}

/// The weights of a state space.
pub struct StateSpaceWeights<'a, O: Ops> {
    gate: O::Linear<'a>,
    x: O::Linear<'a>,
    b: O::Linear<'a>,
    c: O::Linear<'a>,
    steps: O::Linear<'a>,
    kernel: Kernel<'a>,
    /// −e^stored. // [head]
    decay: Vec<f32>,
    skip: Cow<'a, [f32]>,
    step_bias: Cow<'a, [f32]>,
    gain: Option<Cow<'a, [f32]>>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> StateSpaceWeights<'a, O> {
    /// # Errors
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &StateSpaceSpec) -> Result<Self> {
        let log_decay = shelf.vector(&spec.log_decay, spec.n_heads)?;
        Ok(Self {
            gate: shelf.linear(&spec.gate)?,
            x: shelf.linear(&spec.x)?,
            b: shelf.linear(&spec.b)?,
            c: shelf.linear(&spec.c)?,
            steps: shelf.linear(&spec.steps)?,
            kernel: spec.convolution.read(shelf)?,
            decay: log_decay.iter().map(|v| -v.exp()).collect(),
            skip: shelf.vector(&spec.skip, spec.n_heads)?,
            step_bias: shelf.vector(&spec.step_bias, spec.n_heads)?,
            gain: match &spec.norm {
                Some(norm) => Some(norm.read(shelf)?),
                None => None,
            },
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with what the state space adds. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &StateSpaceSpec,
    weights: &StateSpaceWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let mut projected = O::Buffer::default();
    let mut rows_of = |linear| mapped(context, from, linear, &mut projected);
    let gates = rows_of(&weights.gate)?; // [position, n_inner]
    let (n_inner, n_along) = (spec.n_inner(), spec.n_groups * spec.d_state);
    let together = beside([
        (&rows_of(&weights.x)?, n_inner),
        (&rows_of(&weights.b)?, n_along),
        (&rows_of(&weights.c)?, n_along),
    ]); // [position, n_inner + 2 · n_along]
    let mut steps = rows_of(&weights.steps)?; // [position, head]
    let [shortest, longest] = spec.step_limits;
    for row in steps.chunks_mut(spec.n_heads.max(1)) {
        for (step, bias) in row.iter_mut().zip(&*weights.step_bias) {
            *step = softplus(*step + bias).max(shortest).min(longest);
        }
    }
    let of = StateSpace {
        n_heads: spec.n_heads,
        d_head: spec.d_head,
        n_groups: spec.n_groups,
        d_state: spec.d_state,
        decay: &weights.decay,
        skip: &weights.skip,
    };
    let (n, width) = (spec.n_heads, n_inner + 2 * n_along);
    let mut read = each_copy(context, steps.len() / n.max(1), memory, |rows, kept| {
        let values = &together[rows.start * width..rows.end * width];
        let mut mixed = weights.kernel.run(&mut kept.tail, values);
        activate(spec.activation, &mut mixed);
        hide_padding(context, &mut mixed, width);
        let [x, b, c] = apart(&mixed, [n_inner, n_along, n_along]);
        let tokens = StateSpaceTokens {
            x: &x,
            b: &b,
            c: &c,
            steps: &steps[rows.start * n..rows.end * n],
        };
        state_space(of, tokens, &mut kept.state)
    }); // [position, n_inner]
    let norm = spec.norm.as_ref().zip(weights.gain.as_deref());
    let norm = norm.map(|(norm, gain)| norm.with(gain));
    GatedNorm::apply(norm, &mut read, &gates, n_inner);
    ops.put(&read, n_inner, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}
