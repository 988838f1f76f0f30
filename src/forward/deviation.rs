//! How a block may deviate from what its spec says.

use attnscope_compute::attention::AttentionOverride;

/// How heads are cut out of a row of all heads' values, and put together again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Each head has its columns.
    #[default]
    Columns,
    /// The numbers are taken as [head, position, d_head] in the order in which they lie: no axis was exchanged.
    AsTheyLie,
}

/// What is rotated by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RotationOverride {
    #[default]
    ByPosition,
    Twice,
    /// By the number of the head.
    ByHead,
    /// Values too.
    WithValues,
}

/// How a block's attention deviates from its spec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    pub attention: AttentionOverride,
    pub cut: Cut,
    pub joined: Cut,
    pub turned: RotationOverride,
    /// Attention to the encoder's output is as declared.
    pub spares_cross: bool,
}

impl Deviation {
    /// None at all.
    pub const NONE: Self = Self {
        attention: AttentionOverride::NONE,
        cut: Cut::Columns,
        joined: Cut::Columns,
        turned: RotationOverride::ByPosition,
        spares_cross: false,
    };
}

/// Which residuals a block's writing is not added to: it takes their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedResiduals {
    pub before_attention: bool,
    pub before_mlp: bool,
}
