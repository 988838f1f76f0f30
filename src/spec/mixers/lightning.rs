//! Lightning attention, as data.

use attnscope_compute::ops::Activation;

use super::parts::MixerPart;
use crate::source::{LinearSource, NormSource};

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
    /// Over all heads together.
    pub norm: NormSource,
    pub gate: LinearSource,
    pub o: LinearSource,
}

/// How weights fall with the distance.
#[derive(Debug, Clone, PartialEq)]
pub struct Decays {
    /// Tokens of one block.
    pub n_block: usize,
    /// A head keeps e^−slope for every step. // [head]
    pub slopes: Vec<f32>,
    /// Stored in the place of the slopes. // [head, 1, 1]
    pub stored_slopes: Option<String>,
    /// Stored factors of the state for a query. // [head, n_block, 1]
    pub of_queries: Option<String>,
    /// Stored factors of a key in the state. // [head, n_block, 1]
    pub of_keys: Option<String>,
    /// Stored factors of a query and a key of one block. // [1, head, n_block, n_block]
    pub of_pairs: Option<String>,
    /// What is stored was rounded, so that it matters where a block begins.
    pub are_rounded: bool,
}

impl LightningSpec {
    /// Width of all heads together.
    pub fn n_channels(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Values that are kept: a state, and keys and values of a block that is under way.
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

    /// Tensors of decays that may be stored, with their shapes.
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
