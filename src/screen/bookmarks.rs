//! Views that a person comes back to: bookmarks of a checkpoint, and the last view of a session.

use attnscope_run::HeadMap;
use attnscope_spec::Stack;
use serde::{Deserialize, Serialize};

use super::app::{App, Axis, HeadView, Overlay};
use super::find::{Find, Item, Target};
use super::panel::Panel;
use super::plot::Shown;
use super::selection::{Selection, step};
use super::token_statistics::{n_statistics, statistic};

/// Where somebody looks, in names that outlive a version: a panel, a place, a statistic, and what of a head is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub panel: String,
    /// Empty for models of one stack.
    #[serde(default)]
    pub stack: String,
    pub layer: usize,
    pub head: usize,
    pub query: usize,
    pub key: usize,
    pub statistic: String,
    /// Which of the head's maps; empty for the pattern.
    #[serde(default)]
    pub map: String,
    #[serde(default)]
    pub log: bool,
}

impl Look {
    /// Where the screen is now.
    pub fn of(app: &App) -> Self {
        let at = app.selection;
        Self {
            panel: app.panel.title().to_owned(),
            stack: at.stack.label().unwrap_or_default().to_owned(),
            layer: at.layer_idx,
            head: at.head_idx,
            query: at.query_idx,
            key: at.key_idx,
            statistic: statistic(app.statistic_idx).id.to_owned(),
            map: app.head_view.map.name().to_owned(),
            log: app.head_view.is_log,
        }
    }

    fn panel(&self) -> Option<Panel> {
        let mut all = Panel::ALL.into_iter();
        all.find(|panel| panel.title() == self.panel)
    }

    fn stack(&self) -> Option<Stack> {
        let all = [Stack::Encoder, Stack::Decoder, Stack::Cross];
        all.into_iter()
            .find(|stack| stack.label() == Some(&self.stack))
    }

    fn statistic_idx(&self) -> Option<usize> {
        (0..n_statistics()).find(|idx| statistic(*idx).id == self.statistic)
    }

    /// What is to be shown when a session begins there.
    pub fn shown(&self) -> Shown {
        Shown {
            stack: self.stack(),
            layer_idx: Some(self.layer),
            head_idx: Some(self.head),
            query_idx: Some(self.query),
            key_idx: Some(self.key),
            statistic_idx: self.statistic_idx().unwrap_or(0),
            head_view: self.head_view(),
            ..Shown::of(self.panel().unwrap_or(Panel::Overview))
        }
    }

    fn map(&self) -> HeadMap {
        let all = [HeadMap::Scores, HeadMap::Contribution];
        let named = all.into_iter().find(|map| map.name() == self.map);
        named.unwrap_or_default()
    }

    fn head_view(&self) -> HeadView {
        HeadView {
            map: self.map(),
            is_log: self.log,
            ..HeadView::default()
        }
    }

    /// How a list names it.
    fn label(&self) -> String {
        let at = Selection {
            stack: self.stack().unwrap_or(Stack::Only),
            layer_idx: self.layer,
            head_idx: self.head,
            ..Selection::default()
        };
        let statistic = self.statistic_idx().map_or("", |idx| statistic(idx).title);
        let (query, key) = (self.query, self.key);
        match self.panel() {
            Some(panel) if panel.shows_head() => {
                format!(
                    "{} · {} · query {query} → key {key}",
                    panel.title(),
                    at.head()
                )
            }
            _ => format!("{} · {} · {statistic}", self.panel, at.head()),
        }
    }
}

impl App {
    /// Sets a bookmark where the screen is, or takes back the one that is there; the oldest gives way to one too many.
    pub(super) fn toggle_bookmark(&mut self) {
        let here = Look::of(self);
        let n_before = self.bookmarks.len();
        self.bookmarks.retain(|look| *look != here);
        self.written = Some(if self.bookmarks.len() < n_before {
            format!("took the bookmark back: {}", here.label())
        } else {
            let jumps = self.keys.key(super::keys::Action::Bookmarks);
            let said = format!("bookmark: {} · {jumps} jumps", here.label());
            self.bookmarks.push(here);
            let n_most = self.limits.bookmarks.max(1);
            let n_over = self.bookmarks.len().saturating_sub(n_most);
            self.bookmarks.drain(..n_over);
            said
        });
    }

    /// The list of bookmarks, the newest first.
    pub(super) fn open_bookmarks(&mut self) {
        self.overlay = Some(Overlay::Palette(Find::new(self.bookmark_items())));
    }

    pub(super) fn bookmark_items(&self) -> Vec<Item> {
        let looks = self.bookmarks.iter().enumerate().rev();
        looks
            .map(|(idx, look)| Item::new(look.label(), "bookmark", Target::Bookmark(idx)))
            .collect()
    }

    /// Goes where a bookmark is, as far as what is open has such a place.
    pub(super) fn go_to_bookmark(&mut self, idx: usize) {
        let Some(look) = self.bookmarks.get(idx).cloned() else {
            return;
        };
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
        match look
            .panel()
            .filter(|panel| self.panels().any(|p| p == *panel))
        {
            Some(panel) => self.go(panel),
            None => self.notice = Some(format!("{}: there is no such panel here", look.panel)),
        }
        self.keep_crosshair_in_sight();
        let here = Look::of(self);
        if self.notice.is_none()
            && (here.layer, here.head, here.query, here.key)
                != (look.layer, look.head, look.query, look.key)
        {
            self.notice =
                Some("the model or the text has no such place: this is the nearest".to_owned());
        }
    }
}
