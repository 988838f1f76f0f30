//! What the heads of the run on screen do: asked of the worker while the Effect panel is open, and shown as it comes.

use std::sync::Arc;

use attnscope_run::WhatIf;
use attnscope_spec::Place;
use attnscope_studies::effect::head_of;
use attnscope_worker::{EffectQuery, EffectShown, Measure};

use super::app::{App, Effect};
use super::panel::Panel;
use super::run::RunState;
use super::scene::Scene;
use super::selection::step;

/// The measure that is chosen, what came last, and what is awaited.
#[derive(Debug, Default)]
pub struct EffectView {
    pub measure: Measure,
    shown: Option<(EffectQuery, Arc<EffectShown>)>,
    awaited: Option<EffectQuery>,
    /// Whether what is awaited is over, or was given up.
    is_over: bool,
}

impl EffectView {
    /// Drops what was computed, and what is awaited.
    pub fn forget(&mut self) {
        *self = Self {
            measure: self.measure,
            ..Self::default()
        };
    }

    /// Takes in that there will be no more of something; whether that is what is awaited.
    pub fn end(&mut self, of: EffectQuery) -> bool {
        let is_awaited = self.awaited == Some(of);
        self.is_over |= is_awaited;
        is_awaited
    }
}

impl<'a> Scene<'a> {
    fn effect_wanted(self) -> Option<EffectQuery> {
        let run = self.run()?;
        run.subject.model()?;
        Some(EffectQuery {
            run: run.id,
            measure: self.effect_measure(),
            position_idx: self.selection.query_idx,
        })
    }

    /// Why the model has no predictions to measure effects on.
    pub fn no_predictions(self) -> Option<String> {
        let model = self.subject()?.model()?;
        head_of(model).err().map(|why| why.to_string())
    }

    /// The measure that is shown: the chosen one, or the one that there is without predictions.
    pub fn effect_measure(self) -> Measure {
        let chosen = self.effect_view.measure;
        if chosen.needs_predictions() && self.no_predictions().is_some() {
            Measure::Contribution
        } else {
            chosen
        }
    }

    /// What is known of the effects that are wanted.
    pub fn effects(self) -> Option<&'a EffectShown> {
        let wanted = self.effect_wanted()?;
        let (of, shown) = self.state().effect_view.shown.as_ref()?;
        (*of == wanted).then_some(shown)
    }

    /// Whether values are still to come.
    pub fn awaits_effects(self) -> bool {
        let view = &self.state().effect_view;
        let is_here = self.panel == Panel::Effect && view.awaited == self.effect_wanted();
        is_here && !view.is_over && view.awaited.is_some()
    }

    /// Heads with values, the largest first, whichever way it goes.
    pub fn ranked_effects(self) -> Vec<(Place, f64)> {
        let mut heads = self
            .effects()
            .map_or(Vec::new(), |shown| shown.heads.clone());
        heads.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        heads
    }

    /// The selected head as a place.
    pub fn selected_place(self) -> Place {
        let at = self.selection;
        Place::layer(at.stack, at.layer_idx).head(at.head_idx)
    }
}

impl App {
    /// Asks for what the Effect panel shows, once the run is over.
    pub(super) fn ask_for_effects(&mut self, effects: &mut Vec<Effect>) {
        if self.panel != Panel::Effect {
            return;
        }
        let scene = self.scene();
        let is_done = scene
            .run()
            .is_some_and(|run| matches!(run.state, RunState::Done { .. }));
        let Some(wanted) = scene.effect_wanted().filter(|_| is_done) else {
            return;
        };
        let is_asked = self.effect_view.awaited == Some(wanted);
        if is_asked {
            return;
        }
        self.effect_view.awaited = Some(wanted);
        self.effect_view.is_over = false;
        effects.push(Effect::Measure(wanted));
    }

    pub(super) fn take_effects(&mut self, of: EffectQuery, shown: Arc<EffectShown>, is_last: bool) {
        if self.effect_view.awaited == Some(of) {
            self.effect_view.is_over = is_last;
            self.effect_view.shown = Some((of, shown));
        }
    }

    /// The next measure.
    pub(super) fn next_measure(&mut self) {
        if let Some(why) = self.scene().no_predictions() {
            self.notice = Some(format!("{why}; contribution needs none"));
            return;
        }
        self.effect_view.measure = self.effect_view.measure.next();
    }

    /// Moves along the ranking, or along the text.
    pub(super) fn step_effects(&mut self, across: isize, down: isize, n_queries: usize) {
        self.selection.query_idx = step(self.selection.query_idx, across, n_queries);
        let ranked = self.scene().ranked_effects();
        if down == 0 || ranked.is_empty() {
            return;
        }
        let here = self.scene().selected_place();
        let at = ranked
            .iter()
            .position(|(place, _)| place.is_same_head(&here));
        let next = at.map_or(0, |at| step(at, down, ranked.len()));
        let (place, _) = ranked[next];
        self.selection.stack = place.grid();
        self.selection.layer_idx = place.layer_idx.unwrap_or(0);
        self.selection.head_idx = place.head_idx.unwrap_or(0);
    }

    /// Supposes that the selected head writes nothing.
    pub(super) fn drop_head(&mut self) {
        let words = format!("drop=zero@{}", self.scene().selected_place());
        match words.parse::<WhatIf>() {
            Ok(what_if) => self.suppose(what_if),
            Err(e) => self.notice = Some(e),
        }
    }
}
