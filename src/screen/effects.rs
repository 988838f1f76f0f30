//! Effects of single heads: requested from the worker while the Effect panel is open, and shown as they arrive.

use std::sync::Arc;

use attnscope_run::WhatIf;
use attnscope_worker::{EffectQuery, EffectShown};

use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::run::RunState;
use super::state::selection::step;

impl App {
    /// Requests what the Effect panel shows, once the run has finished.
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

    /// Switches to the next measure.
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

    /// Adds a what-if in which the selected head writes nothing.
    pub(super) fn drop_head(&mut self) {
        let words = format!("drop=zero@{}", self.scene().selected_place());
        match words.parse::<WhatIf>() {
            Ok(what_if) => self.add_what_if(what_if),
            Err(e) => self.notice = Some(e),
        }
    }
}
