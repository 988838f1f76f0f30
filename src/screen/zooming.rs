//! Panes: the focus, zoom and sizes, by keys.

use super::panels;
use super::state::app::App;

impl App {
    /// Gives the focus to another pane of the open panel.
    pub(super) fn next_pane(&mut self, by: isize) {
        let n = panels::panes(self.scene(), self.areas().body).len();
        if n < 2 {
            self.notice = Some("this panel is one pane".to_owned());
            return;
        }
        self.focus_next(by, n);
        self.keep_crosshair_in_sight();
    }

    /// Lets the pane with the focus fill the panel, or shows all panes again.
    pub(super) fn zoom_pane(&mut self) {
        let is_zoomed = self.is_zoomed();
        let n = panels::panes(self.scene(), self.areas().body).len();
        if n < 2 && !is_zoomed {
            self.notice = Some("this panel is one pane".to_owned());
            return;
        }
        self.set_zoomed(!is_zoomed);
        self.keep_crosshair_in_sight();
    }

    /// Shows all panes again; returns whether one was zoomed.
    pub(super) fn end_zoom(&mut self) -> bool {
        let was = self.is_zoomed();
        if was {
            self.set_zoomed(false);
            self.keep_crosshair_in_sight();
        }
        was
    }

    /// Makes the pane with the focus larger or smaller.
    pub(super) fn grow(&mut self, columns: i32, rows: i32) {
        self.grow_pane(columns, rows);
        self.keep_crosshair_in_sight();
    }
}
