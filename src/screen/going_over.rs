//! Heads over many prompts: requested from the worker when the Prompts panel opens, and shown as they arrive.

use std::sync::Arc;

use attnscope_prompt::{Request, Source};
use attnscope_spec::Place;
use attnscope_studies::over_prompts::OverPrompts;
use attnscope_worker::PromptSet;

use super::state::app::App;
use super::state::editor::as_text;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::prompts_view::End;
use super::state::run::{Preparing, Run};
use super::state::selection::step;
use super::state::views::Axis;

impl App {
    /// Shows the Prompts panel with a set of prompts of a file.
    pub fn give_prompts(&mut self, set: Vec<(String, Request)>) {
        self.prompts_view.given = Some(Arc::new(set));
        self.prompts_view.is_open = true;
    }

    /// Requests the prompts once the panel is open and the first text has run.
    pub(super) fn ask_for_prompts(&mut self, effects: &mut Vec<Effect>) {
        let run = self.runs.a.as_ref();
        let has_run = run.is_some_and(|run| !run.is_running()) && self.preparing.is_none();
        if self.panel == Panel::Prompts && has_run && self.prompts_view.asked.is_none() {
            self.run_prompts(effects);
        }
    }

    /// Runs all prompts of the set; those that run already are stopped.
    pub(super) fn run_prompts(&mut self, effects: &mut Vec<Effect>) {
        let is_model = |run: &Run| run.subject.model().is_some();
        if !self.runs.a.as_ref().is_some_and(is_model) {
            return;
        }
        let set = match &self.prompts_view.given {
            Some(given) => given.clone(),
            None => self.prompts_of_session(),
        };
        let query = self.prompts_view.ask(set);
        effects.push(Effect::OverPrompts(query));
    }

    /// The texts that can be run again without typing them, the oldest first, and the one on screen.
    fn prompts_of_session(&self) -> PromptSet {
        let known = self.known.prompts.iter().map(|text| self.source_of(text));
        let mut sources: Vec<Source> = known.collect();
        if let Some(run) = &self.runs.a
            && !self.known.prompts.contains(&as_text(&run.source))
        {
            sources.push(run.source.clone());
        }
        let numbered = (1..).zip(sources).map(|(nth, source): (usize, _)| {
            let request = Request {
                source,
                ..Request::text("")
            };
            (nth.to_string(), request)
        });
        Arc::new(numbered.collect())
    }

    pub(super) fn take_over_prompts(&mut self, of: u64, over: Arc<OverPrompts>, is_last: bool) {
        let view = &mut self.prompts_view;
        if view.is_asked(of) {
            view.over = Some(over);
            if is_last {
                view.end = End::Done;
            }
        }
    }

    pub(super) fn end_over_prompts(&mut self, of: u64, reason: String) {
        if self.prompts_view.is_asked(of) {
            self.prompts_view.end = End::Because(reason.clone());
            self.notice = Some(format!("going over the prompts: {reason}"));
        }
    }

    /// Exchanges the statistics of the two axes.
    pub(super) fn swap_axes(&mut self) {
        let [x, y] = self.scene().scatter_axes();
        (self.statistic_idx, self.prompts_view.other_idx) = (y, Some(x));
    }

    /// Moves to another head, or along the places that excite the selected one.
    pub(super) fn step_prompts(&mut self, across: isize, down: isize) {
        if across != 0 {
            self.next_head(across);
            self.prompts_view.place_idx = 0;
        }
        let places = self
            .scene()
            .head_over_prompts()
            .map(|head| head.excited.len());
        self.prompts_view.place_idx = step(self.prompts_view.place_idx, down, places.unwrap_or(0));
    }

    /// Runs the prompt of the selected place; its query and key are selected when it starts.
    pub(super) fn open_excited(&mut self, effects: &mut Vec<Effect>) {
        let scene = self.scene();
        let found = scene.head_over_prompts().zip(scene.selected_excited());
        let Some((head, (_, place))) = found else {
            self.notice = Some("no place excites this head yet".to_owned());
            return;
        };
        let at = head.place.query(place.query_idx).key(place.key_idx);
        let set = self.prompts_view.asked.as_ref().map(|query| &query.set);
        let Some((_, request)) = set.and_then(|set| set.get(place.prompt_idx)).cloned() else {
            return;
        };
        self.prompts_view.goes_to = Some((request.source.clone(), at));
        self.preparing = Some(Preparing::Text);
        effects.push(Effect::Run(request));
    }

    /// Selects the place that was asked for, if its prompt is the one that starts.
    pub(super) fn arrive(&mut self, source: &Source) {
        let Some((_, place)) = self.prompts_view.goes_to.take_if(|(of, _)| of == source) else {
            return;
        };
        self.select_grid(place.grid());
        self.selection.layer_idx = place.layer_idx.unwrap_or(0);
        self.selection.head_idx = place.head_idx.unwrap_or(0);
        self.step_layer(0);
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        self.selection.query_idx = step(place.query_idx.unwrap_or(0), 0, n_queries);
        self.selection.key_idx = step(place.key_idx.unwrap_or(0), 0, n_keys);
        self.go(Panel::Head);
        self.keep_crosshair_in_sight();
    }

    /// Selects the head of a place.
    pub(super) fn select_over_prompts(&mut self, place: Place) {
        (self.selection.layer_idx, self.selection.head_idx) =
            (place.layer_idx.unwrap_or(0), place.head_idx.unwrap_or(0));
        self.prompts_view.place_idx = 0;
    }
}
