//! Marking several heads, and what is done with them: dropping and comparing them.

use attnscope_run::WhatIf;
use attnscope_spec::Place;

use super::panels;
use super::state::app::App;
use super::state::filter::{List, head_of_key};
use super::state::keys::Action;
use super::state::panel::Panel;
use super::state::selection::step;

impl App {
    /// Marks the selected head, or takes its mark back.
    pub(super) fn mark_head(&mut self) {
        let place = self.scene().selected_place();
        self.marks.toggle(place);
        self.say_marks();
    }

    /// Moves the selection and marks the layers and heads from where that began.
    pub(super) fn extend_marks(&mut self, across: isize, down: isize) {
        let from = self.scene().selected_place();
        let (layer_idx, head_idx) = (self.selection.layer_idx, self.selection.head_idx);
        self.step_layer(down);
        if across != 0 {
            let n_heads = self.scene().n_heads();
            self.selection.head_idx = step(head_idx, across, n_heads);
        }
        let to = self.scene().selected_place();
        self.marks.extend(from, to);
        if (layer_idx, head_idx) != (self.selection.layer_idx, self.selection.head_idx) {
            self.keep_marks();
        }
        self.say_marks();
    }

    /// Marks every head that the filter or the shown type leaves, or takes these marks back.
    pub(super) fn mark_matches(&mut self) {
        let matches: Vec<Place> = match self.filter_of(List::Heads) {
            Some(filter) => filter.matches.iter().map(|key| head_of_key(*key)).collect(),
            None if self.shown_type.is_some() => panels::ranking::places(self.scene()),
            None => {
                self.notice = Some(format!(
                    "{} filters the heads, {} shows those of one type: then this marks all of them",
                    self.keys.key(Action::Find),
                    self.keys.key(Action::NextType)
                ));
                return;
            }
        };
        self.marks.toggle_all(&matches);
        self.say_marks();
    }

    pub(super) fn clear_marks(&mut self) {
        self.marks.clear();
        self.say_marks();
    }

    /// Leaves out marks of layers that have no such head.
    pub(super) fn keep_marks(&mut self) {
        let Some(subject) = self.scene().subject().cloned() else {
            return self.marks.clear();
        };
        let grids = subject.grids();
        self.marks.keep(|place| {
            let layer_idx = place.layer_idx.unwrap_or(0);
            grids.contains(&place.grid())
                && layer_idx < subject.n_layers(place.grid())
                && place.head_idx.unwrap_or(0) < subject.n_heads(place.grid(), layer_idx)
        });
    }

    /// Moves to another marked head.
    pub(super) fn step_marked(&mut self, by: isize) {
        let places = self.marks.places();
        let here = self.scene().selected_place();
        let at = places.iter().position(|place| place.is_same_head(&here));
        let next = at.map_or(0, |at| step(at, by, places.len()));
        if let Some(place) = places.get(next) {
            self.select_grid(place.grid());
            self.selection.layer_idx = place.layer_idx.unwrap_or(0);
            self.selection.head_idx = place.head_idx.unwrap_or(0);
        }
    }

    fn say_marks(&mut self) {
        if self.marks.is_empty() {
            self.written = Some("no head is marked".to_owned());
        }
    }

    /// Adds one what-if in which the marked heads write nothing; without marks, the selected head.
    pub(super) fn drop_marked(&mut self) {
        let mut heads = self.marks.places();
        if heads.is_empty() {
            heads.push(self.scene().selected_place());
        }
        match WhatIf::new("drop=zero", heads) {
            Ok(what_if) => self.add_what_if(what_if),
            Err(e) => self.notice = Some(e),
        }
    }

    /// Shows the marked heads side by side in Compare, or A and B there again.
    pub(super) fn compare_marked(&mut self) {
        if self.marks.is_empty() {
            self.notice = Some(format!(
                "no head is marked: {} marks the selected one",
                self.keys.key(Action::MarkHead)
            ));
            return;
        }
        let shows = &mut self.compare_view.shows_marked;
        *shows = !*shows || self.panel != Panel::Compare;
        self.go(Panel::Compare);
    }
}
