//! The head: from the last residual to logits or labels.

use attnscope_compute::ops::Activation;

use super::labels::Labels;
use super::quirks::ProbeSpec;
use super::source::{LinearSource, NormSource};

/// The transform between the last residual and the unembedding.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformSpec {
    pub dense: LinearSource,
    pub activation: Option<Activation>,
    pub norm: Option<NormSource>,
}

/// From the last residual to logits.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadSpec {
    pub transform: Option<TransformSpec>,
    pub unembed: LinearSource,
    /// A second map, applied to the second token; the outputs are the mean of both.
    pub second: Option<LinearSource>,
    /// Factor of the products, before `extra_bias` is added.
    pub scale: f32,
    /// cap · tanh(logit / cap).
    pub softcap: Option<f32>,
    /// Added to the logits last. // [d_vocab]
    pub extra_bias: Option<String>,
    /// What the outputs mean, where they are labels instead of tokens.
    pub labels: Option<Box<Labels>>,
    /// Attention pooling of all tokens before the head's map.
    pub probe: Option<Box<ProbeSpec>>,
}

impl HeadSpec {
    pub fn plain(unembed: LinearSource) -> Self {
        Self {
            transform: None,
            unembed,
            second: None,
            scale: 1.0,
            softcap: None,
            extra_bias: None,
            labels: None,
            probe: None,
        }
    }
}
