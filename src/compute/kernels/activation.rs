//! Activation functions by name.

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
    /// x·sigmoid(1.702 x), a cheaper likeness of gelu.
    QuickGelu,
    /// The square of relu.
    ReluSquared,
    Tanh,
    Sigmoid,
    /// x where it is positive, x / 100 where it is not.
    LeakyRelu,
    /// x itself: a gate without a function.
    Identity,
}
