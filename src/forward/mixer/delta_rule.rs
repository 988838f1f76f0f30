//! Gated delta rule mixer: a short convolution over queries, keys and values, a self-correcting state, and a gate.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{
    DeltaTokens, GatedNorm, delta_rule, sigmoid, softplus,
};
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::DeltaRuleSpec;

use super::memory::MixerMemory;
use super::parts::{read_gain, with_gain};
use super::rows::{concat_columns, each_copy, mapped, split_columns};
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of a delta rule.
pub struct DeltaRuleWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    k: O::Linear<'a>,
    v: O::Linear<'a>,
    gate: O::Linear<'a>,
    strength: O::Linear<'a>,
    steps: O::Linear<'a>,
    kernel: Kernel<'a>,
    /// −e^stored. // [value head]
    decay: Vec<f32>,
    step_bias: Cow<'a, [f32]>,
    gain: Cow<'a, [f32]>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> DeltaRuleWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &DeltaRuleSpec) -> Result<Self> {
        let n = spec.heads.n_value_heads;
        let log_decay = shelf.vector(&spec.log_decay, n)?;
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            k: shelf.linear(&spec.k)?,
            v: shelf.linear(&spec.v)?,
            gate: shelf.linear(&spec.gate)?,
            strength: shelf.linear(&spec.strength)?,
            steps: shelf.linear(&spec.steps)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            decay: log_decay.iter().map(|v| -v.exp()).collect(),
            step_bias: shelf.vector(&spec.step_bias, n)?,
            gain: read_gain(&spec.norm, shelf)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the delta rule. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &DeltaRuleSpec,
    weights: &DeltaRuleWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let mut projected = O::Buffer::default();
    let mut rows_of = |linear| mapped(context, from, linear, &mut projected);
    let (n_keys, n_values) = (spec.n_keys(), spec.n_values());
    let together = concat_columns([
        (&rows_of(&weights.q)?, n_keys),
        (&rows_of(&weights.k)?, n_keys),
        (&rows_of(&weights.v)?, n_values),
    ]); // [position, 2 · n_keys + n_values]
    let gates = rows_of(&weights.gate)?; // [position, n_values]
    let mut strength = rows_of(&weights.strength)?; // [position, value head]
    strength.iter_mut().for_each(|v| *v = sigmoid(*v));
    let mut log_kept = rows_of(&weights.steps)?; // [position, value head]
    let n = spec.heads.n_value_heads;
    for row in log_kept.chunks_mut(n.max(1)) {
        let rates = weights.decay.iter().zip(&*weights.step_bias);
        for (step, (decay, bias)) in row.iter_mut().zip(rates) {
            *step = decay * softplus(*step + bias);
        }
    }
    let width = 2 * n_keys + n_values;
    let mut read = each_copy(context, log_kept.len() / n.max(1), memory, |rows, kept| {
        let values = &together[rows.start * width..rows.end * width];
        let mut mixed = weights.kernel.run(&mut kept.tail, values);
        activate(spec.activation, &mut mixed);
        let [q, k, v] = split_columns(&mixed, [n_keys, n_keys, n_values]);
        let heads = rows.start * n..rows.end * n;
        let tokens = DeltaTokens {
            q: &q,
            k: &k,
            v: &v,
            log_kept: &log_kept[heads.clone()],
            strength: &strength[heads],
        };
        delta_rule(spec.heads, tokens, &mut kept.state)
    }); // [position, n_values]
    let norm = with_gain(&spec.norm, &weights.gain);
    GatedNorm::apply(Some(norm), &mut read, &gates, n_values);
    ops.put(&read, n_values, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}
