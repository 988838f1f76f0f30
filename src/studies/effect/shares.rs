//! What an attribution gives: a logit, and what each part of the model adds to it.

use attnscope_spec::Place;

use super::judged::Asked;

/// What a share comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareOf {
    TokenEmbedding,
    PositionEmbedding,
    TokenTypeEmbedding,
    /// Σ p·v of one head, through its slice of the output matrix.
    Head,
    /// What mixes tokens in a layer without heads, such as a convolution.
    Mixer,
    FeedForward,
    /// Every constant: biases of output matrices, norms, the embedding and the unembedding.
    Biases,
}

impl ShareOf {
    /// The word for it in tables and files.
    pub fn label(self) -> &'static str {
        match self {
            Self::TokenEmbedding => "token_embedding",
            Self::PositionEmbedding => "position_embedding",
            Self::TokenTypeEmbedding => "token_type_embedding",
            Self::Head => "head",
            Self::Mixer => "mixer",
            Self::FeedForward => "feed_forward",
            Self::Biases => "biases",
        }
    }
}

/// What one part adds to the logit.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub of: ShareOf,
    /// The head, or the layer; the whole model for embeddings and biases.
    pub place: Place,
    pub value: f64,
    /// Of a head, what each source position adds; empty where that was not asked for. // [key]
    pub by_key: Vec<f64>,
}

/// A logit and its shares, in the order in which the parts run.
#[derive(Debug, Clone)]
pub struct Attribution {
    pub asked: Asked,
    /// The logit, or difference of two, before a cap where the model has one.
    pub logit: f64,
    /// The cap that the model lays on its logits afterwards: what follows is not linear in the shares.
    pub softcap: Option<f64>,
    pub shares: Vec<Share>,
    /// The weights that read the logit off the residual at the position, before each layer and after the last, times that
    /// residual, with the constants of what follows: the path of the logit through the layers.
    pub path: Vec<f64>,
}

impl Attribution {
    /// Σ of all shares: the logit, but for rounding.
    pub fn sum(&self) -> f64 {
        self.shares.iter().map(|share| share.value).sum()
    }
}
