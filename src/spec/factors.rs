//! Stored factors of the outputs of a map or a norm.

/// A stored vector that multiplies the outputs of an affine map or of a norm. // [n_out]
#[derive(Debug, Clone, PartialEq)]
pub struct OutputFactors {
    pub tensor: String,
    pub rule: FactorRule,
    pub held: FactorsHeld,
}

/// What factors are of stored values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FactorRule {
    Stored,
    OnePlus,
    /// ln(1 + e^x), times this.
    Softplus(f32),
}

/// Which outputs a stored factor multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorsHeld {
    /// One output each.
    Each,
    /// One stored value multiplies all outputs.
    One,
    /// Those of one head are stored, and multiply the outputs of so many.
    OfHead(usize),
}

impl OutputFactors {
    /// What a stored vector makes of each output.
    pub fn stored(tensor: String) -> Self {
        Self {
            tensor,
            rule: FactorRule::Stored,
            held: FactorsHeld::Each,
        }
    }

    /// The factors of a map with this number of outputs.
    pub fn of(&self, stored: &[f32], n_out: usize) -> Vec<f32> {
        let factor = |value: &f32| match self.rule {
            FactorRule::Stored => *value,
            FactorRule::OnePlus => 1.0 + value,
            FactorRule::Softplus(by) => by * (value.max(0.0) + (-value.abs()).exp().ln_1p()),
        };
        stored.iter().map(factor).cycle().take(n_out).collect()
    }

    /// The stored shape, for a map with this number of outputs.
    pub fn stored_shape(&self, n_out: usize) -> Vec<usize> {
        vec![match self.held {
            FactorsHeld::Each => n_out,
            FactorsHeld::One => 1,
            FactorsHeld::OfHead(n) => n_out / n.max(1),
        }]
    }
}
