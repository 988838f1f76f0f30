//! Typing a filter, going from match to match, and taking the filter back.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::app::{App, Overlay};
use super::state::filter::List;
use super::state::find::Find;
use super::state::msg::Effect;
use super::state::panel::Panel;

impl App {
    /// Begins to filter the list of the open panel; opens the finder in a panel without one.
    pub(super) fn begin_to_find(&mut self) {
        match self.list_here() {
            Some(list) => {
                self.filters.entry(list).or_default();
                let before = self.selected_row(list);
                self.overlay = Some(Overlay::Filter { before });
            }
            None => self.overlay = Some(Overlay::Find(Find::new(self.find_items()))),
        }
    }

    /// Handles a key while a filter is typed.
    pub(super) fn filter_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let Some(list) = self.list_here() else {
            self.overlay = None;
            return;
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let filter = self.filters.entry(list).or_default();
        match key.code {
            KeyCode::Esc => {
                if let Some(Overlay::Filter { before }) = self.overlay {
                    self.select_row(list, before);
                }
                self.overlay = None;
                self.filters.remove(&list);
                return;
            }
            KeyCode::Enter => return self.end_typing(list, effects),
            KeyCode::Tab => {
                let query = std::mem::take(&mut filter.query);
                self.filters.remove(&list);
                let find = Find::new(self.find_items()).typing(query);
                self.overlay = Some(Overlay::Find(find));
                return;
            }
            KeyCode::Up => return self.step_match(-1, true),
            KeyCode::Down => return self.step_match(1, true),
            KeyCode::Char('p') if is_control => return self.step_match(-1, true),
            KeyCode::Char('n') if is_control => return self.step_match(1, true),
            KeyCode::Char('u') if is_control => filter.query.clear(),
            KeyCode::Backspace => {
                filter.query.pop();
            }
            KeyCode::Char(letter) if !is_control => filter.query.push(letter),
            _ => return,
        }
        self.refresh_filter();
        self.select_first_match();
    }

    /// Keeps the filter. A filter with one match has led there and ends; with none, the finder looks elsewhere.
    fn end_typing(&mut self, list: List, effects: &mut Vec<Effect>) {
        self.overlay = None;
        let filter = self.filters.get(&list).cloned().unwrap_or_default();
        if filter.query.is_empty() || filter.matches.len() < 2 {
            self.filters.remove(&list);
            self.reveal_finding();
        }
        if filter.query.is_empty() || !filter.matches.is_empty() {
            return;
        }
        let find = Find::new(self.find_items()).typing(filter.query);
        match find.item(0).map(|item| item.target.clone()) {
            Some(target) => {
                self.search = find.search_from_here();
                self.choose(target, effects);
            }
            None => self.overlay = Some(Overlay::Find(find)),
        }
    }

    /// Adds the first line of a pasted text to the filter.
    pub(super) fn paste_filter(&mut self, text: &str) {
        let first = text.lines().next().unwrap_or_default();
        let list = self.list_here();
        if let Some(filter) = list.and_then(|list| self.filters.get_mut(&list)) {
            filter.query.push_str(first);
            self.refresh_filter();
            self.select_first_match();
        }
    }

    /// Whether next and previous match mean something here.
    pub(super) fn has_matches(&self) -> bool {
        self.filter_here().is_some() || self.search_here().is_some()
    }

    /// Moves to the next or previous match of the filter, or of what was looked for with the finder.
    pub(super) fn go_to_match(&mut self, by: isize, effects: &mut Vec<Effect>) {
        if self.filter_here().is_some() {
            return self.step_match(by, true);
        }
        if self.search_here().is_none() {
            return;
        }
        let target = self.search.as_mut().and_then(|search| search.step(by));
        if let Some(target) = target {
            self.go_to(target, effects);
        }
    }

    /// Takes the filter or the search of the open panel back; returns whether there was one.
    pub(super) fn end_filter(&mut self) -> bool {
        if let Some((list, _)) = self.filter_here() {
            self.filters.remove(&list);
            self.reveal_finding();
            return true;
        }
        if self.search_here().is_some() {
            self.search = None;
            return true;
        }
        false
    }

    /// Moves down or up among the matches of a list that is walked through row by row; returns whether this is one.
    pub(super) fn step_filtered(&mut self, down: isize) -> bool {
        let is_walked = matches!(
            self.panel,
            Panel::Checks | Panel::Model | Panel::Rows | Panel::Effect | Panel::Scores
        );
        let steps = down != 0 && is_walked && self.filter_here().is_some();
        if steps {
            self.step_match(down, false);
        }
        steps
    }
}
