//! A saved view: a bookmark, or the last view of a session.

use attnscope_run::HeadMap;
use attnscope_spec::Stack;
use serde::{Deserialize, Serialize};

use super::panel::Panel;
use super::selection::Selection;
use super::shown::Shown;
use super::statistics::{n_statistics, statistic};
use super::views::HeadView;

/// A saved view, by names that outlive a version: panel, place, statistic, and how the head is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub panel: String,
    /// Empty for models with a single stack.
    #[serde(default)]
    pub stack: String,
    pub layer: usize,
    pub head: usize,
    pub query: usize,
    pub key: usize,
    pub statistic: String,
    /// The map of the head; empty for the pattern.
    #[serde(default)]
    pub map: String,
    #[serde(default)]
    pub log: bool,
    /// Whether the Overview shows numbers instead of maps.
    #[serde(default)]
    pub numbers: bool,
}

impl Look {
    /// Whether the other view is of the same place.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        let place = |look: &Self| (look.layer, look.head, look.query, look.key);
        self.stack == other.stack && place(self) == place(other)
    }

    pub(crate) fn panel(&self) -> Option<Panel> {
        let mut all = Panel::ALL.into_iter();
        all.find(|panel| panel.title() == self.panel)
    }

    pub(crate) fn stack(&self) -> Option<Stack> {
        let all = [Stack::Encoder, Stack::Decoder, Stack::Cross];
        all.into_iter()
            .find(|stack| stack.label() == Some(&self.stack))
    }

    pub(crate) fn statistic_idx(&self) -> Option<usize> {
        (0..n_statistics()).find(|idx| statistic(*idx).id == self.statistic)
    }

    /// The view as the screen takes it when a session starts.
    pub fn shown(&self) -> Shown {
        Shown {
            stack: self.stack(),
            layer_idx: Some(self.layer),
            head_idx: Some(self.head),
            query_idx: Some(self.query),
            key_idx: Some(self.key),
            statistic_idx: self.statistic_idx().unwrap_or(0),
            head_view: self.head_view(),
            shows_numbers: self.numbers,
            ..Shown::of(self.panel().unwrap_or(Panel::Overview))
        }
    }

    pub(crate) fn map(&self) -> HeadMap {
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

    /// Label in a list.
    pub(crate) fn label(&self) -> String {
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
