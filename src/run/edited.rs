//! What of a run still holds when the end of its text changes: in a causal model, all of the tokens before.

use std::sync::Arc;

use attnscope_forward::{Input, Recomputed};
use attnscope_spec::ModelSpec;

use super::job::Outcome;
use super::kept::Kept;
use super::predictions::Predictions;

/// A run of the same model that is over.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    pub input: &'a Input,
    pub kept: &'a Kept,
    pub outcome: &'a Outcome,
}

/// What an earlier run knows of another text.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    kept: &'a Kept,
    predictions: Option<&'a Predictions>,
    /// Tokens at the beginning that are the same, seen from each of them.
    n: usize,
}

impl<'a> Earlier<'a> {
    /// What both texts share; `None` where nothing would be spared.
    pub fn shared_with(&self, spec: &ModelSpec, input: &Input) -> Option<Shared<'a>> {
        // A NaN is looked for where it first comes up, not in what was kept.
        if self.outcome.nonfinite.is_some() || self.input.source != input.source {
            return None;
        }
        let (was, is) = (&self.input.sequence, &input.sequence);
        if was.picture != is.picture || was.sound != is.sound {
            return None;
        }
        let (n, _) = Recomputed::n_alike(spec.main_stack(), was, is);
        (n > 0).then_some(Shared {
            kept: self.kept,
            predictions: self.outcome.predictions.as_ref(),
            n,
        })
    }
}

impl Shared<'_> {
    /// Tokens at the beginning that both texts share.
    pub fn n_tokens(&self) -> usize {
        self.n
    }

    /// What a layer of the main stack adds to the shared tokens after attention, as far as it was kept. // [position, d_model]
    pub(super) fn added(&self, layer_idx: usize) -> Option<Arc<Vec<f32>>> {
        self.kept.added(layer_idx)
    }

    /// Predictions, and for how many positions they hold: the last shared token may be followed by another one than before.
    pub(super) fn predictions(&self) -> Option<(&Predictions, usize)> {
        let predictions = self.predictions?;
        let n = self.n.saturating_sub(1).min(predictions.top.len());
        (predictions.labels.is_empty() && n > 0).then_some((predictions, n))
    }
}
