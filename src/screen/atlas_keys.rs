//! Moves through the atlas of the Overview panel: from the model to a layer, to a head, and back.

use super::panels;
use super::state::app::App;
use super::state::panel::Panel;

impl App {
    /// Shows every head as a number instead of a map, or the other way round.
    pub(super) fn toggle_numbers(&mut self) {
        self.overview_view.shows_numbers = !self.overview_view.shows_numbers;
    }

    /// Shows the heads of the selected layer alone; opens the selected head if that is shown already.
    pub(super) fn zoom_into_heads(&mut self) {
        let shows_layer = self.overview_view.shows_maps() && self.overview_view.is_of_layer;
        if shows_layer || self.scene().n_layers() == 1 {
            self.go(Panel::Head);
        } else {
            self.overview_view.shows_numbers = false;
            self.overview_view.is_of_layer = true;
        }
    }

    /// Shows the heads of all layers again.
    pub(super) fn zoom_out_of_heads(&mut self) {
        if self.overview_view.is_of_layer {
            self.overview_view.is_of_layer = false;
        } else {
            self.notice = Some("all layers are shown".to_owned());
        }
    }

    /// The head above or below the selected one if the heads of a layer stand in several rows; `None` if the move leaves the layer.
    pub(super) fn head_in_next_row(&self, down: isize) -> Option<usize> {
        if self.panel != Panel::Overview || down.unsigned_abs() != 1 {
            return None;
        }
        let body = self.areas().body;
        let across = panels::overview::heads_across(self.scene(), body)?;
        let head_idx = self.selection.head_idx;
        let next = head_idx.checked_add_signed(down * across as isize)?;
        (next < self.scene().n_heads()).then_some(next)
    }
}
