//! What the model writes, token by token, and what a person looks at of it: keys and events.

use std::sync::Arc;

use attnscope_prompt::{Request, Source, Target};
use attnscope_worker::{Event, WrittenToken};
use crossterm::event::{KeyCode, KeyEvent};

use super::app::{App, Effect, Overlay};
use super::run::Preparing;
use super::selection::step;

/// What the model has written so far.
#[derive(Debug, Default)]
pub struct WritingView {
    /// What the tokens before read as.
    pub given: Vec<String>,
    /// The encoder's tokens, where there is an encoder.
    pub keys: Option<Vec<String>>,
    /// What A wrote, and B where another model stands beside it.
    pub sides: Vec<WrittenSide>,
    /// The side that is looked at.
    pub side: usize,
    pub n_most: usize,
    /// The token that is looked at; the newest one where there is none.
    pub looked_at: Option<usize>,
    pub state: WritingState,
    /// The whole text, once it is there and does not run yet.
    to_run: Option<Request>,
}

/// What one model wrote.
#[derive(Debug, Default)]
pub struct WrittenSide {
    pub model: String,
    pub tokens: Vec<Arc<WrittenToken>>,
}

/// How far writing has come.
#[derive(Debug, Default, PartialEq)]
pub enum WritingState {
    #[default]
    Reading,
    Going,
    Ended,
    /// Says why.
    BrokeOff(String),
}

impl WritingView {
    /// What the side that is looked at wrote.
    pub fn tokens(&self) -> &[Arc<WrittenToken>] {
        self.sides
            .get(self.side)
            .map_or(&[], |side| side.tokens.as_slice())
    }

    /// The token that is looked at.
    pub fn shown(&self) -> Option<(usize, &WrittenToken)> {
        let tokens = self.tokens();
        let last = tokens.len().checked_sub(1)?;
        let idx = self.looked_at.unwrap_or(last).min(last);
        Some((idx, &tokens[idx]))
    }

    /// What the keys of a row read as.
    pub fn label(&self, is_cross: bool, key_idx: usize) -> &str {
        let label = match &self.keys {
            Some(keys) if is_cross => keys.get(key_idx),
            _ => self.given.get(key_idx),
        };
        let written = || {
            let token = self.tokens().get(key_idx.checked_sub(self.given.len())?)?;
            Some(&token.label)
        };
        label.or_else(written).map_or("", String::as_str)
    }

    pub fn is_going(&self) -> bool {
        matches!(self.state, WritingState::Reading | WritingState::Going)
    }

    fn walk(&mut self, by: isize) {
        let n = self.tokens().len();
        let last = n.saturating_sub(1);
        let at = step(self.looked_at.unwrap_or(last), by, n);
        // Beyond the last token, the view follows what is written.
        self.looked_at = (at < last).then_some(at);
    }
}

impl App {
    pub(super) fn begin_to_write(&mut self, effects: &mut Vec<Effect>) {
        let view = WritingView::default();
        self.overlay = Some(Overlay::Writing(Box::new(view)));
        effects.push(Effect::Write);
    }

    pub(super) fn writing_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let Some(Overlay::Writing(view)) = &mut self.overlay else {
            return;
        };
        match key.code {
            KeyCode::Left | KeyCode::Up | KeyCode::Char('h' | 'k') => view.walk(-1),
            KeyCode::Right | KeyCode::Down | KeyCode::Char('l' | 'j') => view.walk(1),
            KeyCode::PageUp => view.walk(-10),
            KeyCode::PageDown => view.walk(10),
            KeyCode::Home | KeyCode::Char('g') => view.walk(isize::MIN / 2),
            KeyCode::End => view.walk(isize::MAX / 2),
            KeyCode::Char('c') if view.is_going() => {
                view.state = WritingState::BrokeOff("stopped".to_owned());
                effects.push(Effect::Cancel);
            }
            KeyCode::Char('G') if !view.is_going() => self.begin_to_write(effects),
            KeyCode::Char('v') => view.side = (view.side + 1) % view.sides.len().max(1),
            KeyCode::Char(']') => self.next_head(1),
            KeyCode::Char('[') => self.next_head(-1),
            KeyCode::Char('}') => self.step_layer(1),
            KeyCode::Char('{') => self.step_layer(-1),
            KeyCode::Char('o') => self.next_grid(),
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Esc | KeyCode::Enter => {
                // The row that a token was read off is that of the token before it.
                let row = view.shown().map(|(idx, _)| view.given.len() + idx);
                let was_going = view.is_going();
                self.overlay = None;
                if let Some(row) = row {
                    self.selection.query_idx = row.saturating_sub(1);
                }
                if was_going {
                    effects.push(Effect::Cancel);
                }
            }
            _ => {}
        }
    }

    pub(super) fn take_writing(&mut self, event: Event) {
        match event {
            Event::BeganToWrite {
                given,
                keys,
                n_most,
                models,
            } => {
                if let Some(Overlay::Writing(view)) = &mut self.overlay {
                    let side = |model| WrittenSide {
                        model,
                        tokens: Vec::new(),
                    };
                    view.sides = models.into_iter().map(side).collect();
                    (view.given, view.keys, view.n_most) = (given, keys, n_most);
                }
            }
            Event::Wrote(side, token) => {
                if let Some(Overlay::Writing(view)) = &mut self.overlay {
                    if view.state == WritingState::Reading {
                        view.state = WritingState::Going;
                    }
                    if let Some(side) = view.sides.get_mut(side) {
                        side.tokens.push(token);
                    }
                }
            }
            Event::EndedWriting {
                tokens,
                given,
                real,
                n_written,
                why,
            } => {
                let Some(Overlay::Writing(view)) = &mut self.overlay else {
                    return;
                };
                view.state = why.map_or(WritingState::Ended, WritingState::BrokeOff);
                // What was written is a text like any other: it runs as a whole, and every panel shows it.
                view.to_run = (n_written > 0).then(|| {
                    let (source, target) = match given {
                        Some(given) => (given, Target::Ids(tokens)),
                        None => (Source::Ids(tokens), Target::Generate(0)),
                    };
                    Request {
                        source,
                        target,
                        attention_mask: real,
                        ..Request::text("")
                    }
                });
            }
            _ => {}
        }
    }

    /// Says that the model does not write after all.
    pub(super) fn give_up_writing(&mut self) {
        if let Some(Overlay::Writing(view)) = &self.overlay
            && view.tokens().is_empty()
        {
            self.overlay = None;
        }
    }

    /// Runs what was written.
    pub(super) fn ask_to_run_written(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Writing(view)) = &mut self.overlay else {
            return;
        };
        if let Some(request) = view.to_run.take() {
            self.preparing = Some(Preparing::Text);
            effects.push(Effect::Run(request));
        }
    }
}
