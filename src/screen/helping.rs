//! The list of keys: opening it, filtering it, scrolling it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::app::{App, Overlay};
use super::state::keys::Action;
use super::update::PAGE;

impl App {
    pub(super) fn open_help(&mut self) {
        self.overlay = Some(Overlay::Help {
            scroll: 0,
            typed: None,
        });
    }

    /// Handles a key while the list is open: the key of the finder begins a filter, and letters belong to it from then on.
    pub(super) fn help_key(&mut self, key: KeyEvent) {
        let binding = self.keys.binding_of(key, self.panel);
        let begins = binding.is_some_and(|binding| binding.action == Action::Find);
        let Some(Overlay::Help { scroll, typed }) = &mut self.overlay else {
            return;
        };
        match (key.code, typed.as_mut()) {
            (KeyCode::Down, _) => *scroll += 1,
            (KeyCode::Up, _) => *scroll = scroll.saturating_sub(1),
            (KeyCode::PageDown, _) => *scroll += PAGE as usize,
            (KeyCode::PageUp, _) => *scroll = scroll.saturating_sub(PAGE as usize),
            (KeyCode::Esc, Some(_)) => (*scroll, *typed) = (0, None),
            (KeyCode::Backspace, Some(letters)) => {
                *scroll = 0;
                if letters.pop().is_none() {
                    *typed = None;
                }
            }
            (KeyCode::Char(letter), Some(letters))
                if !key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                *scroll = 0;
                letters.push(letter);
            }
            (KeyCode::Char('j'), None) => *scroll += 1,
            (KeyCode::Char('k'), None) => *scroll = scroll.saturating_sub(1),
            (KeyCode::Char('q'), None) => self.is_over = true,
            (_, None) if begins => (*scroll, *typed) = (0, Some(String::new())),
            _ => self.overlay = None,
        }
    }
}
