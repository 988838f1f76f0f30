//! What of a run still holds when the model is changed from some layer on.

use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_spec::{ModelSpec, Stack, StackSpec};

use super::kept::{Encoded, Kept};

/// A run that is over, and the model that it ran.
#[derive(Debug, Clone, Copy)]
pub struct Resume<'a> {
    pub spec: &'a ModelSpec,
    pub kept: &'a Kept,
    pub layers: &'a [Arc<LayerReport>],
}

/// Where a changed stack begins.
pub(super) enum Begin {
    /// With its embedding.
    Anew,
    /// With the input of a layer, which was kept.
    At {
        layer_idx: usize,
        input: Arc<Vec<f32>>,
    },
}

impl Resume<'_> {
    /// What an encoder gave, where it is the same in both models.
    pub(super) fn encoded(&self, stack: &StackSpec) -> Option<&Encoded> {
        let is_same = stack.stack == Stack::Encoder && self.spec.stacks.contains(stack);
        self.kept.memory().filter(|_| is_same)
    }

    /// The nearest kept input at or before the first layer that differs; a decoder of a changed encoder begins anew.
    pub(super) fn begin(&self, changed: &ModelSpec, stack: &StackSpec) -> Begin {
        let of_encoder = |spec: &ModelSpec| {
            let encoder = spec.stacks.iter().find(|s| s.stack == Stack::Encoder);
            encoder.cloned()
        };
        let was = self.spec.stack_of(stack.stack);
        let reads_another = of_encoder(self.spec) != of_encoder(changed);
        let first = match stack.stack {
            Stack::Decoder if reads_another => 0,
            _ => {
                let pairs = was.blocks().iter().zip(stack.blocks());
                let n_same = pairs.take_while(|(was, is)| was == is).count();
                // Of a stack that is the same, the last layer runs again: what follows it is not kept.
                n_same.min(stack.n_layers().saturating_sub(1))
            }
        };
        let found = self.kept.nearest((stack.stack, first));
        found.map_or(Begin::Anew, |(layer_idx, input)| Begin::At {
            layer_idx,
            input,
        })
    }

    /// What was told of the layers of a stack, up to one.
    pub(super) fn told_before(
        &self,
        stack: Stack,
        layer_idx: usize,
    ) -> impl Iterator<Item = &LayerReport> {
        let is_here = move |report: &&Arc<LayerReport>| {
            let home = match report.stack {
                Stack::Cross => Stack::Decoder,
                other => other,
            };
            home == stack && report.layer_idx < layer_idx
        };
        self.layers.iter().filter(is_here).map(Arc::as_ref)
    }
}
