//! The gated delta rule, as data.

use attnscope_compute::kernels::recurrent::DeltaRule;
use attnscope_compute::ops::Activation;

use super::parts::{GatedNormSource, MixerPart, ShortConvolution};
use crate::source::LinearSource;

/// The gated delta rule: out(norm(rule(act(conv(q, k, v)), decay, strength)) · silu(gate)).
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaRuleSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub gate: LinearSource,
    /// Map into the narrower vectors that the gate's map reads.
    pub narrow_gate: Option<Box<LinearSource>>,
    /// Map to the update strength (β), before the sigmoid.
    pub strength: LinearSource,
    /// Map to the decay step, before the softplus.
    pub steps: LinearSource,
    /// Map into the narrower vectors that the steps' map reads.
    pub narrow_steps: Option<Box<LinearSource>>,
    /// Over queries, keys and values, concatenated.
    pub convolution: ShortConvolution,
    pub activation: Activation,
    pub heads: DeltaRule,
    /// Multiplies the update strength, after the sigmoid; above 1, eigenvalues of the state's change may be negative.
    pub strength_scale: f32,
    /// Logarithm of each head's decay rate. // [value head], or [1, 1, value head, 1]
    pub log_decay: String,
    pub log_decay_shape: Vec<usize>,
    /// Bounds the logarithm of what is kept: it is this number times the sigmoid of the step times its decay rate. `None` if it is minus
    /// the rate times the softplus of the step.
    pub log_bound: Option<f32>,
    /// Added to the steps before the softplus. // [value head], by channel [value head · d_key]
    pub step_bias: String,
    pub norm: GatedNormSource,
    pub o: LinearSource,
}

impl DeltaRuleSpec {
    /// Width of the keys of all heads; that of the queries is the same.
    pub fn n_keys(&self) -> usize {
        self.heads.n_key_heads * self.heads.d_key
    }

    /// Width of the values of all heads.
    pub fn n_values(&self) -> usize {
        self.heads.n_value_heads * self.heads.d_value
    }

    /// Number of steps of a token: one for each value head, or for each channel of its key.
    pub fn n_steps(&self) -> usize {
        let heads = self.heads;
        heads.n_value_heads * if heads.by_channel { heads.d_key } else { 1 }
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
        let narrow = [
            ("narrow_gate", &self.narrow_gate),
            ("narrow_steps", &self.narrow_steps),
        ];
        let narrow = narrow.into_iter();
        parts.extend(narrow.filter_map(|(name, map)| Some(MixerPart::Map(name, map.as_deref()?))));
        parts.extend(self.convolution.parts());
        let shape = self.log_decay_shape.clone();
        parts.extend([
            MixerPart::Tensor("log_decay", &self.log_decay, shape),
            MixerPart::Tensor("step_bias", &self.step_bias, vec![self.n_steps()]),
            self.norm.part(),
            MixerPart::Map("o", &self.o),
        ]);
        parts
    }
}
