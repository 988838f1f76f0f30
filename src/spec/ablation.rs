//! What replaces a head's output in an ablation.

/// The replacement of an ablated head's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ablation {
    Zero,
    /// The head's mean output over the real positions of the prompt.
    Mean,
}
