//! Activation functions by name.

use std::fmt;

/// Activation functions of feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x·Φ(x) through the error function.
    Gelu,
    /// The tanh approximation of gelu.
    GeluTanh,
    Relu,
    /// x·sigmoid(x).
    Silu,
    /// x·sigmoid(1.702 x), a cheaper approximation of gelu.
    QuickGelu,
    /// The square of relu.
    ReluSquared,
    Tanh,
    Sigmoid,
    /// x if positive, otherwise x / 100.
    LeakyRelu,
    /// x itself: a gate without an activation.
    Identity,
}

impl fmt::Display for Activation {
    /// Prints the name used in configurations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_new",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::QuickGelu => "quick_gelu",
            Self::ReluSquared => "relu2",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::LeakyRelu => "leaky_relu",
            Self::Identity => "identity",
        })
    }
}
