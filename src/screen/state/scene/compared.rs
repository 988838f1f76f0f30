//! Results of comparing A and B in lockstep.

use attnscope_compare::{Comparison, HeadDifference, PredictionDifference};
use attnscope_run::{Step, Subject};
use attnscope_spec::Stack;

use super::Scene;
use crate::state::run::Run;
use crate::state::runs::{Comparing, Second};

impl<'a> Scene<'a> {
    /// The comparison of A and B, once it is there.
    pub fn comparison(self) -> Option<&'a Comparison> {
        match &self.state().runs.b.as_ref()?.comparing {
            Comparing::Done(comparison) => Some(comparison),
            _ => None,
        }
    }

    /// The worker's current step of the comparison; `None` if none is in progress.
    pub fn compares_now(self) -> Option<Option<&'a Step>> {
        match &self.state().runs.b.as_ref()?.comparing {
            Comparing::Going(step) => Some(step.as_ref()),
            _ => None,
        }
    }

    /// Whether A and B can be compared in lockstep and have not been yet.
    pub fn awaits_comparison(self) -> bool {
        let is_open =
            |second: &Second| matches!(second.comparing, Comparing::No | Comparing::Going(_));
        self.both_runs()
            .is_some_and(|both| both.into_iter().all(has_hooks))
            && self.state().runs.b.as_ref().is_some_and(is_open)
    }

    /// The predictions of both sides at each position, compared.
    pub fn compared_predictions(self) -> Option<&'a PredictionDifference> {
        self.comparison()?.prompts.first()?.predictions.as_ref()
    }

    /// A head's patterns in A and in B.
    pub fn compared_head(
        self,
        grid: Stack,
        layer_idx: usize,
        head_idx: usize,
    ) -> Option<&'a HeadDifference> {
        let mut heads = self.comparison()?.prompts.first()?.heads.iter();
        heads
            .find(|head| (head.stack, head.layer_idx, head.head_idx) == (grid, layer_idx, head_idx))
    }

    /// Whether to colour heads by the distance of their patterns.
    pub fn shows_distance(self) -> bool {
        self.panel.compares() && self.compare_view.is_by_distance && self.both_runs().is_some()
    }
}

/// Whether a run has hooks to compare: models do, and traces may.
pub fn has_hooks(run: &Run) -> bool {
    !matches!(run.subject, Subject::Alignment(_))
}

/// Number of tensors that differ or that one side lacks.
pub fn n_differing(comparison: &Comparison) -> usize {
    let weights = &comparison.weights;
    weights.differ.len() + weights.only_a.len() + weights.only_b.len()
}
