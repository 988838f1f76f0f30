//! Reuses results of an earlier run after the model changed from some layer on.

use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_spec::{ModelSpec, Stack, StackSpec};

use super::kept::{Encoded, Kept};

/// A finished run, and the spec of its model.
#[derive(Debug, Clone, Copy)]
pub struct Resume<'a> {
    pub spec: &'a ModelSpec,
    pub kept: &'a Kept,
    pub layers: &'a [Arc<LayerReport>],
}

/// Where a changed stack starts.
pub(super) enum Begin {
    /// From its embedding.
    Anew,
    /// From the kept input of a layer.
    At {
        layer_idx: usize,
        input: Arc<Vec<f32>>,
    },
}

impl Resume<'_> {
    /// Encoder output, if the encoder is the same in both models.
    pub(super) fn encoded(&self, stack: &StackSpec) -> Option<&Encoded> {
        let is_same = stack.stack == Stack::Encoder && self.spec.stacks.contains(stack);
        self.kept.memory().filter(|_| is_same)
    }

    /// Nearest kept input at or before the first changed layer. If the encoder changed, the decoder starts from its embedding.
    pub(super) fn begin(&self, changed: &ModelSpec, stack: &StackSpec) -> Begin {
        let of_encoder = |spec: &ModelSpec| {
            let encoder = spec.stacks.iter().find(|s| s.stack == Stack::Encoder);
            encoder.cloned()
        };
        let was = self.spec.stack_of(stack.stack);
        let reads_another = of_encoder(self.spec) != of_encoder(changed);
        // Layer inputs are kept, and tables that all layers share are none of them.
        if was.embed != stack.embed || was.bucket_values != stack.bucket_values {
            return Begin::Anew;
        }
        let first = match stack.stack {
            Stack::Decoder if reads_another => 0,
            _ => {
                let pairs = was.blocks().iter().zip(stack.blocks());
                let n_same = pairs.take_while(|(was, is)| was == is).count();
                // In an unchanged stack the last layer runs again, because its output is not kept.
                n_same.min(stack.n_layers().saturating_sub(1))
            }
        };
        let found = self.kept.nearest((stack.stack, first));
        found.map_or(Begin::Anew, |(layer_idx, input)| Begin::At {
            layer_idx,
            input,
        })
    }

    /// Earlier reports of a stack's layers before `layer_idx`.
    pub(super) fn reports_before(
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
