//! Gated delta rule mixer: a short convolution over queries, keys and values, a self-correcting state, and a gate.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{
    DeltaTokens, GatedNorm, delta_rule, sigmoid, softplus,
};
use attnscope_compute::ops::Ops;
use attnscope_spec::LinearSource;
use attnscope_spec::mixers::DeltaRuleSpec;

use super::memory::MixerMemory;
use super::parts::{read_gain, with_gain};
use super::rows::{concat_columns, each_copy, mapped, split_columns};
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// A map, and the map into the narrower vectors that it reads, if there is one.
type Map<'a, O> = (Option<<O as Ops>::Linear<'a>>, <O as Ops>::Linear<'a>);

/// The weights of a delta rule.
pub struct DeltaRuleWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    k: O::Linear<'a>,
    v: O::Linear<'a>,
    gate: Map<'a, O>,
    strength: O::Linear<'a>,
    steps: Map<'a, O>,
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
        let log_decay = shelf
            .tensors
            .expect(&spec.log_decay, &spec.log_decay_shape)?;
        let log_decay = log_decay.widen()?;
        let map = |narrow: &Option<Box<LinearSource>>, map| -> Result<Map<'a, O>> {
            let narrow = narrow.as_ref().map(|narrow| shelf.linear(narrow));
            Ok((narrow.transpose()?, shelf.linear(map)?))
        };
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            k: shelf.linear(&spec.k)?,
            v: shelf.linear(&spec.v)?,
            gate: map(&spec.narrow_gate, &spec.gate)?,
            strength: shelf.linear(&spec.strength)?,
            steps: map(&spec.narrow_steps, &spec.steps)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            decay: log_decay.iter().map(|v| -v.exp()).collect(),
            step_bias: shelf.vector(&spec.step_bias, spec.n_steps())?,
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
    let mut strength = rows_of(&weights.strength)?; // [position, value head]
    let scale = spec.strength_scale;
    strength.iter_mut().for_each(|v| *v = scale * sigmoid(*v));
    let mut through = |(narrow, map): &Map<'_, O>| match narrow {
        Some(narrow) => {
            let mut between = O::Buffer::default();
            ops.linear(from, narrow, &mut between, pace)?;
            mapped(context, &between, map, &mut projected)
        }
        None => mapped(context, from, map, &mut projected),
    };
    let gates = through(&weights.gate)?; // [position, n_values]
    let mut log_kept = through(&weights.steps)?; // [position, n_steps]
    let (n, n_steps) = (spec.heads.n_value_heads, spec.n_steps());
    let per_head = n_steps / n.max(1);
    for row in log_kept.chunks_mut(n_steps.max(1)) {
        for (idx, (step, bias)) in row.iter_mut().zip(&*weights.step_bias).enumerate() {
            let (rate, biased) = (weights.decay[idx / per_head.max(1)], *step + bias);
            *step = match spec.log_bound {
                Some(bound) => bound * sigmoid(-rate * biased),
                None => rate * softplus(biased),
            };
        }
    }
    let width = 2 * n_keys + n_values;
    let mut read = each_copy(context, strength.len() / n.max(1), memory, |rows, kept| {
        let values = &together[rows.start * width..rows.end * width];
        let mut mixed = weights.kernel.run(&mut kept.tail, values);
        activate(spec.activation, &mut mixed);
        let [q, k, v] = split_columns(&mixed, [n_keys, n_keys, n_values]);
        let heads = rows.start * n..rows.end * n;
        let tokens = DeltaTokens {
            q: &q,
            k: &k,
            v: &v,
            log_kept: &log_kept[rows.start * n_steps..rows.end * n_steps],
            strength: &strength[heads],
        };
        delta_rule(spec.heads, tokens, &mut kept.state)
    }); // [position, n_values]
    let norm = with_gain(&spec.norm, &weights.gain);
    GatedNorm::apply(Some(norm), &mut read, &gates, n_values);
    ops.put(&read, n_values, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}
