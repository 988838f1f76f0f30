//! A mixer by the gated delta rule: a short convolution over queries, keys and values, a state that corrects itself, and a gate.

use std::borrow::Cow;

use super::memory::MixerMemory;
use super::parts::{GatedNormSource, MixerPart};
use super::rows::{apart, beside, each_copy, mapped};
use super::short_convolution::{Kernel, ShortConvolution};
use crate::error::Result;
use crate::kernels::activate;
use crate::kernels::recurrent::{DeltaRule, DeltaTokens, GatedNorm, delta_rule, sigmoid, softplus};
use crate::model::context::BlockContext;
use crate::model::source::LinearSource;
use crate::model::weights::Shelf;
use crate::ops::{Activation, Ops};

/// The gated delta rule: out(norm(rule(act(conv(q, k, v)), kept, strength)) · silu(gate)).
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaRuleSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub gate: LinearSource,
    /// How much of a correction is made, before the sigmoid.
    pub strength: LinearSource,
    /// How much is forgotten, before the softplus.
    pub steps: LinearSource,
    /// Over queries, keys and values, side by side.
    pub convolution: ShortConvolution,
    pub activation: Activation,
    pub heads: DeltaRule,
    /// The logarithm of how fast a head forgets. // [value head]
    pub log_decay: String,
    /// Added to steps before the softplus. // [value head]
    pub step_bias: String,
    pub norm: GatedNormSource,
    pub o: LinearSource,
}

impl DeltaRuleSpec {
    fn n_keys(&self) -> usize {
        self.heads.n_key_heads * self.heads.d_key
    }

    fn n_values(&self) -> usize {
        self.heads.n_value_heads * self.heads.d_value
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let maps = [
            ("q", &self.q),
            ("k", &self.k),
            ("v", &self.v),
            ("gate", &self.gate),
            ("strength", &self.strength),
            ("steps", &self.steps),
        ];
        let mut parts = Vec::from(maps.map(|(name, map)| MixerPart::Map(name, map)));
        parts.extend(self.convolution.parts());
        let n = self.heads.n_value_heads;
        parts.extend([
            MixerPart::Tensor("log_decay", &self.log_decay, vec![n]),
            MixerPart::Tensor("step_bias", &self.step_bias, vec![n]),
            self.norm.part(),
            MixerPart::Map("o", &self.o),
        ]);
        parts
    }
}

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
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &DeltaRuleSpec) -> Result<Self> {
        let n = spec.heads.n_value_heads;
        let log_decay = shelf.vector(&spec.log_decay, n)?;
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            k: shelf.linear(&spec.k)?,
            v: shelf.linear(&spec.v)?,
            gate: shelf.linear(&spec.gate)?,
            strength: shelf.linear(&spec.strength)?,
            steps: shelf.linear(&spec.steps)?,
            kernel: spec.convolution.read(shelf)?,
            decay: log_decay.iter().map(|v| -v.exp()).collect(),
            step_bias: shelf.vector(&spec.step_bias, n)?,
            gain: spec.norm.read(shelf)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with what the rule adds. // from: [position, d_model]
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
    let together = beside([
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
        let [q, k, v] = apart(&mixed, [n_keys, n_keys, n_values]);
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
    let norm = spec.norm.with(&weights.gain);
    GatedNorm::apply(Some(norm), &mut read, &gates, n_values);
    ops.put(&read, n_values, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}
