//! Heads that are to run otherwise than their layer: only ever supposed, never read from a checkpoint.

use std::ops::Range;

use super::spec::{ProjectionSpec, SelfSpec};
use crate::attention::AttentionSpec;

/// Heads with an attention of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub heads: Range<usize>,
    pub attention: AttentionSpec,
    pub projections: ProjectionSpec,
}

impl SelfSpec {
    /// How one head runs.
    pub fn of_head(&self, head_idx: usize) -> (&AttentionSpec, &ProjectionSpec) {
        let mut variants = self.exceptions.variants.iter();
        let variant = variants.find(|variant| variant.heads.contains(&head_idx));
        variant.map_or((&self.attention, &self.projections), |variant| {
            (&variant.attention, &variant.projections)
        })
    }
}

/// What stands in the place of a head's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ablation {
    Zero,
    /// Its mean over the real positions of the prompt.
    Mean,
}

/// All exceptions of one attention.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exceptions {
    /// Without overlap, in the order of heads.
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
