//! Text generation: the keys while the model writes, and the tokens that arrive.

use attnscope_prompt::{Request, Source, Target};
use attnscope_worker::Event;
use crossterm::event::{KeyCode, KeyEvent};

use super::state::app::{App, Overlay};
use super::state::msg::Effect;
use super::state::run::Preparing;
use super::state::writing_view::{WritingState, WritingView, WrittenSide};

impl App {
    pub(super) fn begin_to_write(&mut self, effects: &mut Vec<Effect>) {
        let shows_heads = match &self.overlay {
            Some(Overlay::Writing(view)) => view.shows_heads,
            _ => false,
        };
        let view = WritingView {
            shows_heads,
            ..WritingView::default()
        };
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
            KeyCode::Char('a') => view.shows_heads = !view.shows_heads,
            KeyCode::Char('v') => view.side = (view.side + 1) % view.sides.len().max(1),
            KeyCode::Char(']') => self.next_head(1),
            KeyCode::Char('[') => self.next_head(-1),
            KeyCode::Char('}') => self.step_layer(1),
            KeyCode::Char('{') => self.step_layer(-1),
            KeyCode::Char('o') => self.next_grid(),
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Esc | KeyCode::Enter => {
                // A token is predicted from the row of the token before it.
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
                // Run the generated text as an ordinary prompt, so that every panel shows it.
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

    /// Closes the overlay if the model cannot start writing.
    pub(super) fn give_up_writing(&mut self) {
        if let Some(Overlay::Writing(view)) = &self.overlay
            && view.tokens().is_empty()
        {
            self.overlay = None;
        }
    }

    /// Runs the generated text.
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
