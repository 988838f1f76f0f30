//! The output head: maps the last residual to logits or labels.

use attnscope_compute::ops::Activation;

use super::labels::Labels;
use super::norm_source::NormSource;
use super::quirks::PoolingSpec;
use super::source::LinearSource;

/// A transform applied to the last residual before the unembedding.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformSpec {
    pub dense: LinearSource,
    pub activation: Option<Activation>,
    pub norm: Option<NormSource>,
    /// A second layer of the same kind after this one.
    pub then: Option<Box<TransformSpec>>,
}

impl TransformSpec {
    /// The layers in the order in which they run.
    pub fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |layer| layer.then.as_deref())
    }
}

/// An output head: maps the last residual to logits.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadSpec {
    pub transform: Option<TransformSpec>,
    pub unembed: LinearSource,
    /// A norm of the state that several tokens were pooled to.
    pub pooled_norm: Option<NormSource>,
    /// A second map, applied to the second token; the outputs are the mean of both.
    pub second: Option<LinearSource>,
    /// Multiplies the logits before `extra_bias` is added.
    pub scale: f32,
    /// cap · tanh(logit / cap).
    pub softcap: Option<f32>,
    /// Added to the logits last, after scale and softcap. // [d_vocab]
    pub extra_bias: Option<String>,
    /// Meaning of the outputs, if they are labels instead of tokens.
    pub labels: Option<Box<Labels>>,
    /// Attention pooling of all tokens before the head's map.
    pub pooling: Option<Box<PoolingSpec>>,
}

impl HeadSpec {
    pub fn plain(unembed: LinearSource) -> Self {
        Self {
            transform: None,
            pooled_norm: None,
            unembed,
            second: None,
            scale: 1.0,
            softcap: None,
            extra_bias: None,
            labels: None,
            pooling: None,
        }
    }
}
