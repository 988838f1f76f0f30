//! Self-attention of a block, and exceptions for single heads. Exceptions are set by what-ifs, never by a checkpoint.

use std::ops::Range;

use attnscope_compute::attention::AttentionSpec;

use super::ablation::Ablation;
use super::projection::ProjectionSpec;

/// Heads that run with a different attention than their layer (a what-if).
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub heads: Range<usize>,
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
}

impl SelfSpec {
    /// The attention and projections that one head runs with.
    pub fn of_head(&self, head_idx: usize) -> (&AttentionSpec, &ProjectionSpec) {
        let mut variants = self.exceptions.variants.iter();
        let variant = variants.find(|variant| variant.heads.contains(&head_idx));
        variant.map_or((&self.attention, &self.projections), |variant| {
            (&variant.attention, &variant.projections)
        })
    }
}

/// All exceptions of one attention.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exceptions {
    /// Non-overlapping, ordered by head.
    pub variants: Vec<Variant>,
    pub ablated: Vec<(usize, Ablation)>,
}

impl Exceptions {
    pub fn is_empty(&self) -> bool {
        self.variants.is_empty() && self.ablated.is_empty()
    }

    /// The attention of one head.
    pub fn attention_of<'a>(
        &'a self,
        head_idx: usize,
        otherwise: &'a AttentionSpec,
    ) -> &'a AttentionSpec {
        let variant = self.variants.iter().find(|v| v.heads.contains(&head_idx));
        variant.map_or(otherwise, |variant| &variant.attention)
    }
}

/// Self-attention of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfSpec {
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
    pub exceptions: Exceptions,
}
