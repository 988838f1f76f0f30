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
    /// Map to the update strength (β), before the sigmoid.
    pub strength: LinearSource,
    /// Map to the decay step, before the softplus.
    pub steps: LinearSource,
    /// Over queries, keys and values, concatenated.
    pub convolution: ShortConvolution,
    pub activation: Activation,
    pub heads: DeltaRule,
    /// Logarithm of each head's decay rate. // [value head]
    pub log_decay: String,
    /// Added to the steps before the softplus. // [value head]
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
