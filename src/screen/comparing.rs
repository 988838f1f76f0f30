//! The comparison of A and B in lockstep: asked of the worker where a panel shows it, and what is known of it.

use std::sync::Arc;

use attnscope_compare::{Comparison, HeadDifference, PredictionDifference};
use attnscope_forward::Hook;
use attnscope_run::{Step, Subject};
use attnscope_spec::Stack;
use attnscope_worker::Pair;

use super::app::{App, Effect};
use super::panel::Panel;
use super::run::{Run, RunState};
use super::runs::Second;
use super::scene::Scene;

/// How far A and B are compared.
#[derive(Debug, Clone, Default)]
pub enum Comparing {
    /// Nothing was asked.
    #[default]
    No,
    /// The worker was asked; what it does now, once that is told.
    Going(Option<Step>),
    Done(Arc<Comparison>),
    /// It was stopped, or something could not be read or computed: why.
    Ended(String),
}

/// What the Compare panel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompareView {
    /// Heads by the distance of their patterns, not by the chosen statistic.
    pub is_by_distance: bool,
}

impl<'a> Scene<'a> {
    /// The comparison of A and B, once it is there.
    pub fn comparison(self) -> Option<&'a Comparison> {
        match &self.state().runs.b.as_ref()?.comparing {
            Comparing::Done(comparison) => Some(comparison),
            _ => None,
        }
    }

    /// What the worker does of the comparison; `None` where none goes on.
    pub fn compares_now(self) -> Option<Option<&'a Step>> {
        match &self.state().runs.b.as_ref()?.comparing {
            Comparing::Going(step) => Some(step.as_ref()),
            _ => None,
        }
    }

    /// Whether A and B can be compared in lockstep, and are not yet.
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

    /// Whether heads are to be coloured by the distance of their patterns.
    pub fn shows_distance(self) -> bool {
        self.panel.compares() && self.compare_view.is_by_distance && self.both_runs().is_some()
    }
}

/// Whether a run has hooks to compare: that of a model, or of a trace, which may hold some.
fn has_hooks(run: &Run) -> bool {
    !matches!(run.subject, Subject::Alignment(_))
}

/// Why heads cannot be told apart by the distance of their patterns.
pub fn no_distance(app: &App) -> Option<&'static str> {
    let Some(both) = app.runs.both() else {
        return Some("there is nothing to compare with: w, E or --against");
    };
    if !both.into_iter().all(has_hooks) {
        return Some("the distance of patterns is not computed for alignments");
    }
    (both[0].prompt.tokens != both[1].prompt.tokens)
        .then_some("patterns of two texts have no distance: heads compare by statistics")
}

/// Why there is no first difference to go to.
pub fn no_first(app: &App) -> Option<&'static str> {
    match app.scene().comparison() {
        None => Some("nothing is compared hook by hook"),
        Some(comparison) if comparison.first().is_none() => {
            Some("no hook differs beyond its tolerance")
        }
        Some(_) => None,
    }
}

/// Tensors that differ, or that one side lacks.
pub fn n_differing(comparison: &Comparison) -> usize {
    let weights = &comparison.weights;
    weights.differ.len() + weights.only_a.len() + weights.only_b.len()
}

impl App {
    /// Asks for the comparison, once both runs are over and a panel shows it.
    pub(super) fn ask_for_comparison(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        let is_shown = match self.panel {
            Panel::Compare => true,
            Panel::Tokens | Panel::Model => scene.shows_difference(),
            _ => false,
        };
        let Some([a, b]) = scene.both_runs().filter(|_| is_shown) else {
            return;
        };
        let can = [a, b]
            .into_iter()
            .all(|run| matches!(run.state, RunState::Done { .. }) && has_hooks(run));
        let pair = (a.id, b.id);
        if let Some(second) = self.runs.b.as_mut().filter(|_| can)
            && matches!(second.comparing, Comparing::No)
        {
            second.comparing = Comparing::Going(None);
            effects.push(Effect::Compare(pair));
        }
    }

    /// Selects the place at which A and B differ first, as far as the hook has one.
    pub(super) fn go_to_first(&mut self) {
        let first = self
            .scene()
            .comparison()
            .and_then(Comparison::first)
            .cloned();
        let Some((first, stack)) = first.and_then(|first| Some((first.clone(), first.stack?)))
        else {
            self.notice = Some("what differs first belongs to no head".to_owned());
            return;
        };
        let Some(layer_idx) = first.layer_idx else {
            self.notice = Some(format!("{} belongs to no layer", first.name()));
            return;
        };
        self.select_grid(stack);
        self.selection.layer_idx = layer_idx;
        if let Some(head_idx) = first.head_idx {
            // Keys and values are counted by kv head: the first head that reads it stands for it.
            let per_kv = match (first.hook, self.scene().attention()) {
                (Hook::K | Hook::V | Hook::RotK, Some(spec)) => {
                    spec.n_heads / spec.n_kv_heads.max(1)
                }
                _ => 1,
            };
            self.selection.head_idx = head_idx * per_kv.max(1);
        }
        self.step_layer(0);
        self.selection.query_idx = first.query_idx.unwrap_or(self.selection.query_idx);
        self.selection.key_idx = first.key_idx.unwrap_or(self.selection.key_idx);
        self.select_grid(stack);
    }

    /// Takes in what is told of a comparison, unless it is of runs that are no longer on screen.
    pub(super) fn take_comparing(&mut self, pair: Pair, told: Comparing) {
        let is_current = self.runs.both().is_some_and(|[a, b]| (a.id, b.id) == pair);
        if let Some(second) = self.runs.b.as_mut().filter(|_| is_current) {
            second.comparing = told;
        }
    }
}
