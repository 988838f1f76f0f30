//! Lightning attention, as data.

use attnscope_compute::ops::Activation;

use super::parts::MixerPart;
use crate::norm_source::NormSource;
use crate::source::LinearSource;

/// Lightning attention: out(sigmoid(gate) · norm(attention(act(q), act(k), act(v)))).
#[derive(Debug, Clone, PartialEq)]
pub struct LightningSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub activation: Activation,
    pub n_heads: usize,
    pub d_head: usize,
    pub decays: Decays,
    /// Over the concatenated heads.
    pub norm: NormSource,
    pub gate: LinearSource,
    pub o: LinearSource,
}

/// How attention weights decay with distance.
#[derive(Debug, Clone, PartialEq)]
pub struct Decays {
    /// Tokens of one block.
    pub n_block: usize,
    /// Each head multiplies by e^−slope per step. // [head]
    pub slopes: Vec<f32>,
    /// Stored slopes that replace the computed ones. // [head, 1, 1]
    pub stored_slopes: Option<String>,
    /// Stored factors of the state, for each query of a block. // [head, n_block, 1]
    pub of_queries: Option<String>,
    /// Stored factors of each key when it enters the state. // [head, n_block, 1]
    pub of_keys: Option<String>,
    /// Stored factors of each query–key pair within a block. // [1, head, n_block, n_block]
    pub of_pairs: Option<String>,
    /// The stored factors were rounded, so the result depends on where blocks begin.
    pub are_rounded: bool,
}

impl LightningSpec {
    /// Width of all heads together.
    pub fn n_channels(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Number of cached values: the state, and the keys and values of the unfinished block.
    pub(super) fn n_kept(&self, n_tokens: usize) -> usize {
        self.n_channels() * (self.d_head + 2 * (n_tokens % self.decays.n_block.max(1)))
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let mut parts = vec![
            MixerPart::Map("q", &self.q),
            MixerPart::Map("k", &self.k),
            MixerPart::Map("v", &self.v),
            MixerPart::Norm("norm", &self.norm),
            MixerPart::Map("gate", &self.gate),
            MixerPart::Map("o", &self.o),
        ];
        parts.extend(
            self.stored()
                .into_iter()
                .filter_map(|(name, tensor, shape)| {
                    Some(MixerPart::Tensor(name, tensor.as_deref()?, shape))
                }),
        );
        parts
    }

    /// Optional stored decay tensors, with their shapes.
    pub fn stored(&self) -> [(&'static str, &Option<String>, Vec<usize>); 4] {
        let (decays, h) = (&self.decays, self.n_heads);
        let n = decays.n_block;
        [
            ("slopes", &decays.stored_slopes, vec![h, 1, 1]),
            ("query_decay", &decays.of_queries, vec![h, n, 1]),
            ("key_decay", &decays.of_keys, vec![h, n, 1]),
            ("pair_decay", &decays.of_pairs, vec![1, h, n, n]),
        ]
    }
}
