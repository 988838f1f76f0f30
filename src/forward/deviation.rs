//! Ways in which a block may deviate from its spec.

use attnscope_compute::attention::AttentionOverride;

/// How rows are split into heads and joined again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Each head is a range of columns.
    #[default]
    Columns,
    /// Data is reinterpreted in memory order as [head, position, d_head], as if the transpose had been forgotten.
    AsTheyLie,
}

/// Deviation of the rotary embedding: by which index, and of which vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RotationOverride {
    #[default]
    ByPosition,
    Twice,
    /// By head index in place of position.
    ByHead,
    /// Rotates values too.
    WithValues,
}

/// How a block's attention deviates from its spec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    pub attention: AttentionOverride,
    pub cut: Cut,
    pub joined: Cut,
    pub turned: RotationOverride,
    /// Cross-attention follows its spec.
    pub spares_cross: bool,
}

impl Deviation {
    /// No deviation.
    pub const NONE: Self = Self {
        attention: AttentionOverride::NONE,
        cut: Cut::Columns,
        joined: Cut::Columns,
        turned: RotationOverride::ByPosition,
        spares_cross: false,
    };
}

/// Residual connections to drop: the branch output replaces the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedResiduals {
    pub before_attention: bool,
    pub before_mlp: bool,
}
