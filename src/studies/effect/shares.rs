//! Result of an attribution: a logit, and the share of each part of the model.

use attnscope_spec::Place;

use super::judged::Asked;

/// Kind of part that a share comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareOf {
    TokenEmbedding,
    PositionEmbedding,
    TokenTypeEmbedding,
    /// Σ p·v of one head, through its slice of W_O.
    Head,
    /// Token mixing in a layer without heads, such as a convolution.
    Mixer,
    FeedForward,
    /// All constants: biases of output matrices, norms, the embedding and the unembedding.
    Biases,
}

impl ShareOf {
    /// Name in tables and files.
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

/// Contribution of one part to the logit.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub of: ShareOf,
    /// The head or the layer; the whole model for embeddings and biases.
    pub place: Place,
    pub value: f64,
    /// Contribution of each source position to a head's share; empty if not requested. // [key]
    pub by_key: Vec<f64>,
}

/// A logit and its shares, in the order in which the parts run.
#[derive(Debug, Clone)]
pub struct Attribution {
    pub asked: Asked,
    /// Logit, or difference of two, before any softcap.
    pub logit: f64,
    /// Softcap that the model applies to its logits, if any; the capped logit is not linear in the shares.
    pub softcap: Option<f64>,
    pub shares: Vec<Share>,
    /// Logit as read off the residual at the position before each layer and after the last one, through the linearised later
    /// layers and their constants.
    pub path: Vec<f64>,
}

impl Attribution {
    /// Σ of all shares, which equals the logit except for rounding.
    pub fn sum(&self) -> f64 {
        self.shares.iter().map(|share| share.value).sum()
    }
}
