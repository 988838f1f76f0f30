//! The search list: finds heads, tokens and tensors by a few letters; as the palette, it finds everything.

use attnscope_checks::stats::Conditions;
use attnscope_prompt::Source;
use attnscope_spec::Stack;
use attnscope_terminal::theme::Colours;
use attnscope_worker::Against;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::filter::Search;
use super::head_facts::{HeadFacts, meeting};
use super::keys::Action;
use super::matching::Matching;
use super::panel::Panel;

/// Kind of an item made from the typed text itself.
const TYPED: &str = "typed";

/// Weight of a match in the name, relative to one in other words.
const IN_LABEL: u32 = 20;

/// Target of a line of the list.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Panel(Panel),
    Statistic(usize),
    Layer {
        grid: Stack,
        layer_idx: usize,
    },
    /// A line of the Checks panel.
    Finding(usize),
    Action(Action),
    Colours(Colours),
    /// A text and what stood beside it, to run again.
    Seen(usize),
    /// A what-if of the list, to switch on or off.
    Supposed(usize),
    /// A saved view.
    Bookmark(usize),
    /// A text or ids to run.
    Prompt(Source),
    /// A checkpoint, trace or text to compare with.
    Against(Against),
    Head {
        grid: Stack,
        layer_idx: usize,
        head_idx: usize,
    },
    Token(usize),
    Tensor(usize),
    /// A record of the training.
    Step(usize),
    /// An onset of the training.
    Onset(usize),
}

/// One thing that can be found.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub label: String,
    /// Further words that find it.
    pub also: String,
    /// Description in one line; empty if the label says enough.
    pub about: String,
    pub kind: &'static str,
    pub target: Target,
}

impl Item {
    pub fn new(label: impl Into<String>, kind: &'static str, target: Target) -> Self {
        Self {
            label: label.into(),
            also: String::new(),
            about: String::new(),
            kind,
            target,
        }
    }
}

/// State of the list while it is open.
#[derive(Debug)]
pub struct Find {
    pub query: String,
    items: Vec<Item>,
    /// What the list is of; `None` if it is of everything.
    pub title: Option<&'static str>,
    /// What its keys do.
    pub keys: &'static str,
    /// Number of items before those that are made from the query.
    n_own: usize,
    /// The current item, which gets a mark.
    pub current: Option<usize>,
    /// Interprets the query as a command, such as `compare with runs/b`.
    typed: fn(&str) -> Option<Item>,
    /// The heads among which conditions such as `L1 entropy<0.1` choose.
    heads: Vec<HeadFacts>,
    /// Why the query cannot be read as conditions, if it is meant so.
    pub problem: Option<String>,
    /// Indices of `items`, best first.
    pub found: Vec<usize>,
    pub cursor: usize,
}

/// Result of a key in the list.
#[derive(Debug, PartialEq)]
pub enum Found {
    Going,
    Dismissed,
    Chosen(Target),
    /// The other key of a list, on a line.
    Beside(Target),
}

impl Find {
    pub fn new(items: Vec<Item>) -> Self {
        let found = (0..items.len()).collect();
        Self {
            query: String::new(),
            n_own: items.len(),
            items,
            title: None,
            keys: "Enter goes there",
            current: None,
            typed: |_| None,
            heads: Vec::new(),
            problem: None,
            found,
            cursor: 0,
        }
    }

    /// A list that also interprets the query as a command, or as conditions on heads.
    pub fn palette(
        items: Vec<Item>,
        typed: fn(&str) -> Option<Item>,
        heads: Vec<HeadFacts>,
    ) -> Self {
        Self {
            typed,
            heads,
            ..Self::new(items)
        }
    }

    /// A list that opens at the current item.
    pub fn at(title: &'static str, items: Vec<Item>, current: Option<usize>) -> Self {
        Self {
            title: Some(title),
            keys: "Enter chooses",
            current,
            cursor: current.unwrap_or(0),
            ..Self::new(items)
        }
    }

    /// Whether a line is the current item.
    pub fn is_current(&self, found_idx: usize) -> bool {
        self.current.is_some() && self.found.get(found_idx).copied() == self.current
    }

    pub fn item(&self, found_idx: usize) -> Option<&Item> {
        self.found.get(found_idx).map(|idx| &self.items[*idx])
    }

    /// The list with letters already typed.
    pub fn typing(mut self, query: String) -> Self {
        self.query = query;
        self.search();
        self
    }

    /// What the typed letters find besides the chosen item, of its kind: nothing if nothing was typed.
    pub fn search_from_here(&self) -> Option<Search> {
        let chosen = self.item(self.cursor).filter(|_| !self.query.is_empty())?;
        let mut found: Vec<usize> = self.found.clone();
        found.retain(|idx| self.items[*idx].kind == chosen.kind);
        found.sort_unstable();
        let here = self.found.get(self.cursor);
        Some(Search {
            query: self.query.clone(),
            at: found.iter().position(|idx| Some(idx) == here).unwrap_or(0),
            targets: found
                .into_iter()
                .map(|idx| self.items[idx].target.clone())
                .collect(),
        })
    }

    pub fn key(&mut self, key: KeyEvent) -> Found {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Found::Dismissed,
            KeyCode::Enter => {
                return self
                    .item(self.cursor)
                    .map_or(Found::Going, |item| Found::Chosen(item.target.clone()));
            }
            KeyCode::Tab => {
                let item = self.item(self.cursor);
                return item.map_or(Found::Going, |item| Found::Beside(item.target.clone()));
            }
            KeyCode::Up => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Down => {
                self.cursor = (self.cursor + 1).min(self.found.len().saturating_sub(1))
            }
            KeyCode::Char('p') if is_control => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Char('n') if is_control => {
                self.cursor = (self.cursor + 1).min(self.found.len().saturating_sub(1));
            }
            KeyCode::Backspace => {
                self.query.pop();
                self.search();
            }
            KeyCode::Char(c) if !is_control => {
                self.query.push(c);
                self.search();
            }
            _ => {}
        }
        Found::Going
    }

    /// Lists the heads that meet the conditions of the query.
    fn list_heads(&mut self) {
        match meeting(&self.heads, &self.query) {
            Ok(items) => self.items.extend(items),
            Err(reason) => self.problem = Some(reason),
        }
        self.found = (self.n_own..self.items.len()).collect();
    }

    fn search(&mut self) {
        self.cursor = 0;
        self.items.truncate(self.n_own);
        self.problem = None;
        let typed = (self.typed)(&self.query);
        if typed.is_none() && !self.heads.is_empty() && Conditions::are_meant(&self.query) {
            return self.list_heads();
        }
        if let Some(item) = typed {
            self.items.push(Item {
                kind: TYPED,
                ..item
            });
        }
        let mut matching = Matching::fuzzy(&self.query);
        let mut scored: Vec<(u32, usize)> = Vec::new();
        for (idx, item) in self.items.iter().enumerate() {
            // An exact name ranks above names that merely contain it: L1H2 above L1H20.
            let is_whole = item.label.eq_ignore_ascii_case(&self.query) || item.kind == TYPED;
            let bonus = if is_whole { 1000 } else { 0 };
            let by_label = matching.score(&item.label).map(|score| score + IN_LABEL);
            let also = || format!("{} {}", item.label, item.also);
            let by_words = if item.also.is_empty() {
                None
            } else {
                matching.score(&also())
            };
            let typed = (item.kind == TYPED).then_some(0);
            if let Some(score) = by_label.max(by_words).max(typed) {
                scored.push((score + bonus, idx));
            }
        }
        scored.sort_by_key(|(score, idx)| (std::cmp::Reverse(*score), *idx));
        self.found = scored.into_iter().map(|(_, idx)| idx).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_head_ranks_first_and_enter_chooses_it() {
        let head = |layer_idx: usize, head_idx: usize| {
            let target = Target::Head {
                grid: Stack::Only,
                layer_idx,
                head_idx,
            };
            Item::new(format!("L{layer_idx}H{head_idx}"), "head", target)
        };
        let items = (0..40)
            .flat_map(|layer_idx| (0..40).map(move |head_idx| head(layer_idx, head_idx)))
            .collect();
        let mut find = Find::new(items);
        for c in "l3h7".chars() {
            find.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
        let chosen = find.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        assert_eq!(
            chosen,
            Found::Chosen(Target::Head {
                grid: Stack::Only,
                layer_idx: 3,
                head_idx: 7
            })
        );
    }
}
