//! Ways in which a block may deviate from its spec.

use attnscope_compute::attention::{AttentionOverride, only_change};

/// How rows are split into heads and joined again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Each head is a range of columns.
    #[default]
    Columns,
    /// Data is reinterpreted in memory order as [head, position, d_head], as if the transpose had been forgotten.
    AsTheyLie,
    /// Columns are [d_head, head] instead of [head, d_head].
    ByChannel,
}

/// Deviation of the rotary embedding: by which index, and of which vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RotationOverride {
    #[default]
    ByPosition,
    Twice,
    /// By head index in place of position.
    ByHead,
    /// Rotates values too, or no longer if they turn by the spec.
    WithValues,
    /// Rows of queries and keys were brought from the declared order of pairs into the other one, and once more.
    PermutedTwice,
    /// The part of a query that rotates was stored before the other part; keys as declared.
    QueriesRotaryFirst,
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

impl Deviation {
    /// Both deviations at once; `None` if they change the same thing.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let plain = Self::NONE;
        Some(Self {
            attention: self.attention.and(&other.attention)?,
            cut: only_change(self.cut, other.cut, plain.cut)?,
            joined: only_change(self.joined, other.joined, plain.joined)?,
            turned: only_change(self.turned, other.turned, plain.turned)?,
            spares_cross: self.spares_cross | other.spares_cross,
        })
    }
}

/// Residual connections to drop: the branch output replaces the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedResiduals {
    pub before_attention: bool,
    pub before_mlp: bool,
}
