//! Reuses an earlier run after the end of its text changed: in a causal model, results for tokens before the change still hold.

use std::sync::Arc;

use attnscope_forward::{Input, Recomputed};
use attnscope_spec::ModelSpec;

use super::job::Outcome;
use super::kept::Kept;
use super::predictions::Predictions;

/// A finished run of the same model.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    pub input: &'a Input,
    pub kept: &'a Kept,
    pub outcome: &'a Outcome,
}

/// Results of an earlier run that are valid for another text.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    kept: &'a Kept,
    predictions: Option<&'a Predictions>,
    /// Number of leading tokens that are equal and see the same keys.
    n: usize,
}

impl<'a> Earlier<'a> {
    /// Finds what both texts share; `None` if reuse would save nothing.
    pub fn shared_with(&self, spec: &ModelSpec, input: &Input) -> Option<Shared<'a>> {
        // After a NaN, run everything again: only a full run finds where it first appears.
        if self.outcome.nonfinite.is_some() || self.input.source != input.source {
            return None;
        }
        let (was, is) = (&self.input.sequence, &input.sequence);
        if was.picture != is.picture || was.sound != is.sound {
            return None;
        }
        let (n, _) = Recomputed::n_reusable(spec.main_stack(), was, is);
        (n > 0).then_some(Shared {
            kept: self.kept,
            predictions: self.outcome.predictions.as_ref(),
            n,
        })
    }
}

impl Shared<'_> {
    /// Number of leading tokens that both texts share.
    pub fn n_tokens(&self) -> usize {
        self.n
    }

    /// Output of a layer's feed-forward block for the shared tokens in the main stack, if it was kept. // [position, d_model]
    pub(super) fn added(&self, layer_idx: usize) -> Option<Arc<Vec<f32>>> {
        self.kept.added(layer_idx)
    }

    /// Predictions, and the number of positions that they hold for: the token after the last shared one may have changed.
    pub(super) fn predictions(&self) -> Option<(&Predictions, usize)> {
        let predictions = self.predictions?;
        let n = self.n.saturating_sub(1).min(predictions.top.len());
        (predictions.labels.is_empty() && n > 0).then_some((predictions, n))
    }
}
