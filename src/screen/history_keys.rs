//! Keys and updates of the History panel.

use std::time::Instant;

use attnscope_checks::stats::{Stat, index_of};
use attnscope_compute::error::Result;
use attnscope_history::Update;
use attnscope_worker::{Against, StepOpening};

use super::state::app::App;
use super::state::find::{Item, Target};
use super::state::history_view::{HistoryView, Onset};
use super::state::keys::Action;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::run::Preparing;
use super::state::selection::step;

impl App {
    /// Shows a training; one of its steps may already be open in the other panels.
    pub fn show_training(&mut self, view: HistoryView) {
        let is_opening = view.opened().is_some();
        self.training = Some(view);
        self.panel = Panel::History;
        self.statistic_idx = Stat::EntropyRelative.idx();
        if !is_opening {
            self.preparing = None;
        }
        self.step_history(0, 0);
    }

    pub(super) fn take_updates(&mut self, updates: Vec<Update>) {
        if let Some(view) = &mut self.training {
            view.take(updates, Instant::now());
        }
        if self.opened.is_none() {
            self.step_history(0, 0);
        }
    }

    pub(super) fn end_history(&mut self, outcome: Result<()>) {
        if let Some(view) = &mut self.training {
            view.end(outcome);
        }
    }

    /// Moves to another step, and to another head in reading order (another layer if the statistic is per layer).
    pub(super) fn step_history(&mut self, across: isize, down: isize) {
        let Some(view) = &mut self.training else {
            return;
        };
        view.at = step(view.at, across, view.history.records().len());
        if (across, down) != (0, 0) {
            view.onset = None;
        }
        let grid = view.history.grid();
        let at = &mut self.selection;
        let here = grid.cell(&at.head()).unwrap_or(0);
        if grid.n_heads() == 0 {
            return;
        }
        let place = grid.place(step(here, down, grid.n_heads()));
        at.stack = place.grid();
        at.layer_idx = place.layer_idx.unwrap_or(0);
        at.head_idx = place.head_idx.unwrap_or(0);
    }

    /// Moves to the step and head of the next onset and selects its statistic.
    pub(super) fn step_onset(&mut self, by: isize) {
        let Some(view) = &mut self.training else {
            return;
        };
        let n = view.onsets().len();
        let nth = match view.onset {
            Some(nth) => step(nth, by, n),
            None if by < 0 => n.saturating_sub(1),
            None => 0,
        };
        self.go_to_onset(nth);
    }

    pub(super) fn go_to_onset(&mut self, nth: usize) {
        let Some(view) = &mut self.training else {
            return;
        };
        let Some((record_idx, cell, statistic)) = view.onsets().get(nth).map(Onset::at) else {
            self.notice = Some("no findings in this training".to_owned());
            return;
        };
        let place = view.history.grid().place(cell);
        (view.at, view.onset) = (record_idx, Some(nth));
        if let Some(idx) = index_of(statistic) {
            self.statistic_idx = idx;
        }
        let at = &mut self.selection;
        at.stack = place.grid();
        at.layer_idx = place.layer_idx.unwrap_or(at.layer_idx);
        at.head_idx = place.head_idx.unwrap_or(at.head_idx);
    }

    /// Goes to a step chosen in the palette.
    pub(super) fn go_to_step(&mut self, record_idx: usize) {
        if let Some(view) = &mut self.training {
            let n = view.history.records().len();
            (view.at, view.onset) = (step(record_idx, 0, n), None);
        }
        self.go(Panel::History);
    }

    /// The last steps of the training and its onsets, for the palette.
    pub(super) fn history_items(&self) -> Vec<Item> {
        /// More steps than anybody scrolls through.
        const MOST: usize = 2000;
        let Some(view) = &self.training else {
            return Vec::new();
        };
        let history = &view.history;
        let n = history.records().len();
        let steps = (n.saturating_sub(MOST)..n).map(|idx| {
            let record = &history.records()[idx];
            Item {
                about: record.loss().map_or(String::new(), |loss| {
                    format!("loss {}", attnscope_report::digits(loss))
                }),
                ..Item::new(record.label(), "step", Target::Step(idx))
            }
        });
        let onsets = view.onsets().into_iter().enumerate();
        let onsets =
            onsets.map(|(nth, onset)| Item::new(onset.told(history), "onset", Target::Onset(nth)));
        onsets.chain(steps).collect()
    }

    /// Reads the selected step again, and also the open run if its files have changed.
    pub(super) fn read_step_again(&mut self, effects: &mut Vec<Effect>) {
        let Some(view) = &self.training else { return };
        let said = view.read_again();
        if self.changed.is_some() {
            self.act(Action::ReadAgain, effects);
        }
        self.notice = Some(said);
    }

    /// Moves to the same head of another layer.
    pub(super) fn step_history_layer(&mut self, by: isize) {
        let Some(view) = &self.training else { return };
        let layers = view.history.grid().layers();
        let at = &mut self.selection;
        let is_here = |shape: &attnscope_history::LayerShape| {
            (shape.stack, shape.layer_idx) == (at.stack, at.layer_idx)
        };
        let here = layers.iter().position(is_here).unwrap_or(0);
        if let Some(shape) = layers.get(step(here, by, layers.len())) {
            at.stack = shape.stack;
            at.layer_idx = shape.layer_idx;
            at.head_idx = step(at.head_idx, 0, shape.n_heads);
        }
    }

    /// Opens the selected step as A in all panels; a marked step stays B.
    pub(super) fn open_step(&mut self, effects: &mut Vec<Effect>) {
        let Some(view) = &mut self.training else {
            return;
        };
        match view.opening() {
            Err(reason) => self.notice = Some(reason),
            Ok(opening) => {
                let label = view.record().map_or(String::new(), |record| record.label());
                view.asks();
                self.preparing = Some(Preparing::Text);
                effects.push(Effect::OpenStep(StepOpening(opening)));
                self.notice = Some(format!("opening {label} …"));
                self.opening_notice = Some(format!("{label} is A: panels 1 to 7 show it"));
            }
        }
    }

    /// Opens the newest checkpoint of a training if none is open: otherwise all other panels are empty.
    pub(super) fn open_newest_step(&mut self, effects: &mut Vec<Effect>) {
        let is_free = self.opened.is_none() && self.preparing.is_none();
        let Some(view) = self.training.as_mut().filter(|_| is_free) else {
            return;
        };
        let Some(newest) = view.newest_to_open() else {
            return;
        };
        let selected = std::mem::replace(&mut view.at, newest);
        self.open_step(effects);
        if let Some(view) = &mut self.training {
            view.at = selected;
        }
    }

    /// Marks the selected step for comparison, or removes the mark.
    pub(super) fn mark_step(&mut self) {
        let marked = self.marked_step();
        let Some(view) = &mut self.training else {
            return;
        };
        if marked == Some(view.at) {
            view.unmark();
            self.drop_second();
            self.notice = Some("the mark is gone: showing A".to_owned());
            return;
        }
        if view.opened() == Some(view.at) {
            self.notice = Some("this step is A: choose another one to compare with".to_owned());
            return;
        }
        match view.opening() {
            Err(reason) => self.notice = Some(reason),
            Ok(opening) => {
                let label = view.record().map_or(String::new(), |record| record.label());
                view.mark();
                let next = match self.opened {
                    Some(_) => "7 compares",
                    None => "Enter on another step opens that one as A",
                };
                self.compare_with(Against::Target(opening));
                self.notice = Some(format!("{label} is B: {next}"));
            }
        }
    }
}
