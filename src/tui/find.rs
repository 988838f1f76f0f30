//! The list that finds a head, a token or a tensor by a few letters.

use attnscope_engine::model::Stack;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// What a line of the list leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Head {
        grid: Stack,
        layer_idx: usize,
        head_idx: usize,
    },
    Token(usize),
    Tensor(usize),
}

/// One thing that can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub label: String,
    pub kind: &'static str,
    pub target: Target,
}

/// The list while a person types.
#[derive(Debug)]
pub struct Find {
    pub query: String,
    items: Vec<Item>,
    /// Places in `items`, best first.
    pub found: Vec<usize>,
    pub cursor: usize,
}

/// What a key did to the list.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Going,
    Dismissed,
    Chosen(Target),
}

impl Find {
    pub fn new(items: Vec<Item>) -> Self {
        let found = (0..items.len()).collect();
        Self {
            query: String::new(),
            items,
            found,
            cursor: 0,
        }
    }

    pub fn item(&self, found_idx: usize) -> Option<&Item> {
        self.found.get(found_idx).map(|idx| &self.items[*idx])
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

    fn search(&mut self) {
        self.cursor = 0;
        let pattern = Pattern::parse(&self.query, CaseMatching::Smart, Normalization::Smart);
        let mut matcher = Matcher::new(Config::DEFAULT);
        let mut buffer = Vec::new();
        let mut scored: Vec<(u32, usize)> = Vec::new();
        for (idx, item) in self.items.iter().enumerate() {
            // A whole name before anything that merely contains it: L1H2 is not L1H20.
            let bonus = if item.label.eq_ignore_ascii_case(&self.query) {
                1000
            } else {
                0
            };
            if let Some(score) =
                pattern.score(Utf32Str::new(&item.label, &mut buffer), &mut matcher)
            {
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
    fn the_exact_head_comes_first_and_enter_chooses_it() {
        let head = |layer_idx: usize, head_idx: usize| Item {
            label: format!("L{layer_idx}H{head_idx}"),
            kind: "head",
            target: Target::Head {
                grid: Stack::Only,
                layer_idx,
                head_idx,
            },
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
