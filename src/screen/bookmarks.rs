//! Bookmarks: sets, lists and opens saved views.

use super::state::app::{App, Overlay};
use super::state::find::{Find, Item, Target};
use super::state::keys::Action;
use super::state::look::Look;
use super::state::selection::step;
use super::state::views::Axis;

impl App {
    /// Sets a bookmark at the current view, or removes the one that is there; drops the oldest if there are too many.
    pub(super) fn toggle_bookmark(&mut self) {
        let here = self.look();
        let n_before = self.bookmarks.len();
        self.bookmarks.retain(|look| *look != here);
        self.written = Some(if self.bookmarks.len() < n_before {
            format!("took the bookmark back: {}", here.label())
        } else {
            let jumps = self.keys.key(Action::Bookmarks);
            let said = format!("bookmark: {} · {jumps} jumps", here.label());
            self.bookmarks.push(here);
            let n_most = self.limits.bookmarks.max(1);
            let n_over = self.bookmarks.len().saturating_sub(n_most);
            self.bookmarks.drain(..n_over);
            said
        });
    }

    /// Opens the list of bookmarks, the newest first.
    pub(super) fn open_bookmarks(&mut self) {
        self.overlay = Some(Overlay::Palette(Find::at(
            "bookmarks",
            self.bookmark_items(),
            None,
        )));
    }

    pub(super) fn bookmark_items(&self) -> Vec<Item> {
        let looks = self.bookmarks.iter().enumerate().rev();
        looks
            .map(|(idx, look)| Item::new(look.label(), "bookmark", Target::Bookmark(idx)))
            .collect()
    }

    /// Goes to a bookmark.
    pub(super) fn go_to_bookmark(&mut self, idx: usize) {
        if let Some(look) = self.bookmarks.get(idx).cloned() {
            self.go_to_look(&look);
        }
    }

    /// Goes to a saved view, as far as the open model has that place.
    pub(super) fn go_to_look(&mut self, look: &Look) {
        let grid = look.stack().unwrap_or(self.scene().grids()[0]);
        if self.scene().grids().contains(&grid) {
            self.select_grid(grid);
        }
        let n_layers = self.scene().n_layers();
        self.selection.layer_idx = step(look.layer, 0, n_layers);
        self.selection.head_idx = look.head;
        // A layer without attention has no head to select.
        self.step_layer(0);
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        self.selection.query_idx = step(look.query, 0, n_queries);
        self.selection.key_idx = step(look.key, 0, n_keys);
        self.statistic_idx = look.statistic_idx().unwrap_or(self.statistic_idx);
        self.head_view.map = look.map();
        self.head_view.is_log = look.log;
        self.overview_view.shows_numbers = look.numbers;
        match look
            .panel()
            .filter(|panel| self.panels().any(|p| p == *panel))
        {
            Some(panel) => self.go(panel),
            None => self.notice = Some(format!("{}: there is no such panel here", look.panel)),
        }
        self.keep_crosshair_in_sight();
        let here = self.look();
        if self.notice.is_none()
            && (here.layer, here.head, here.query, here.key)
                != (look.layer, look.head, look.query, look.key)
        {
            self.notice =
                Some("the model or the text has no such place: this is the nearest".to_owned());
        }
    }
}
