//! Mamba-2 mixer: a short convolution, a state space with heads, and a gate with a norm.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{
    GatedNorm, StateSpace, StateSpaceTokens, softplus, state_space,
};
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::StateSpaceSpec;

use super::memory::MixerMemory;
use super::parts::{read_gain, with_gain};
use super::rows::{concat_columns, each_copy, hide_padding, mapped, split_columns};
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

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
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &StateSpaceSpec) -> Result<Self> {
        let log_decay = shelf.vector(&spec.log_decay, spec.n_heads)?;
        Ok(Self {
            gate: shelf.linear(&spec.gate)?,
            x: shelf.linear(&spec.x)?,
            b: shelf.linear(&spec.b)?,
            c: shelf.linear(&spec.c)?,
            steps: shelf.linear(&spec.steps)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            decay: log_decay.iter().map(|v| -v.exp()).collect(),
            skip: shelf.vector(&spec.skip, spec.n_heads)?,
            step_bias: shelf.vector(&spec.step_bias, spec.n_heads)?,
            gain: match &spec.norm {
                Some(norm) => Some(read_gain(norm, shelf)?),
                None => None,
            },
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the state space. // from: [position, d_model]
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
    let together = concat_columns([
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
        let [x, b, c] = split_columns(&mixed, [n_inner, n_along, n_along]);
        let tokens = StateSpaceTokens {
            x: &x,
            b: &b,
            c: &c,
            steps: &steps[rows.start * n..rows.end * n],
        };
        state_space(of, tokens, &mut kept.state)
    }); // [position, n_inner]
    let norm = spec.norm.as_ref().zip(weights.gain.as_deref());
    let norm = norm.map(|(norm, gain)| with_gain(norm, gain));
    GatedNorm::apply(norm, &mut read, &gates, n_inner);
    ops.put(&read, n_inner, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}
