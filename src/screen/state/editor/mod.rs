//! The text field for editing the prompt.

mod opening;
mod pieces;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::values::Values;
use attnscope_prompt::{PictureSource, PromptForm, Request, Source};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};

pub use self::opening::{PathField, text_of};
pub use self::pieces::Pieces;

/// What a text field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Text,
    /// Token ids, where there is no tokenizer.
    Ids,
    /// The path of a picture.
    Picture,
    /// The path of a file with rows of numbers.
    Values,
}

/// What the keys of a text field change, besides the text.
#[derive(Debug, Default)]
pub enum Mode {
    #[default]
    Typing,
    /// Typing the path of a file whose text is to be taken.
    Opening(PathField),
}

/// A prompt being edited.
#[derive(Debug)]
pub struct Editor {
    pub area: TextArea<'static>,
    pub holds: Holds,
    pub mode: Mode,
    /// Whether the submitted prompt becomes B.
    pub is_for_second: bool,
    /// Prompts of this and earlier sessions, the newest last.
    pub past: Vec<String>,
    /// Index of the past prompt shown, and the text typed before it.
    pub at: Option<usize>,
    pub draft: String,
    pub problem: Option<String>,
    /// Cuts the text into tokens while it is typed; `None` if there is no tokenizer at hand.
    pub prompt_form: Option<Arc<PromptForm>>,
    pub pieces: Option<Pieces>,
}

/// Formats a prompt as it would be typed.
pub fn as_text(source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Picture(PictureSource::File(path)) => path.display().to_string(),
        Source::Picture(PictureSource::BuiltIn) => String::new(),
        Source::Values(values) => values.path().display().to_string(),
        Source::Ids(ids) => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            ids.join(", ")
        }
    }
}

/// Creates a text area with the cursor at its end.
fn area_of(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.lines().map(str::to_owned).collect());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area.set_wrap_mode(ratatui_textarea::WrapMode::Word);
    area.set_cursor_line_style(ratatui::style::Style::new());
    area
}

/// Result of a key in the editor.
#[derive(Debug, PartialEq, Eq)]
pub enum Edited {
    Going,
    Dismissed,
    Submitted(Request),
    /// The text is to be edited by the user's own editor.
    Outside(String),
    /// Look for an earlier prompt.
    Search,
}

impl Editor {
    pub fn new(source: &Source) -> Self {
        Self {
            area: area_of(&as_text(source)),
            holds: match source {
                Source::Text(_) => Holds::Text,
                Source::Ids(_) => Holds::Ids,
                Source::Picture(_) => Holds::Picture,
                Source::Values(_) => Holds::Values,
            },
            mode: Mode::Typing,
            is_for_second: false,
            past: Vec::new(),
            at: None,
            draft: String::new(),
            problem: None,
            prompt_form: None,
            pieces: None,
        }
    }

    /// The text as it stands in the field.
    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Replaces the text, with the cursor at its end.
    pub fn replace(&mut self, text: &str) {
        self.area = area_of(text);
        self.problem = None;
        self.cut_again();
    }

    /// Shows an older or newer prompt, or finally the text being typed.
    fn turn(&mut self, is_older: bool) {
        let n = self.past.len();
        let at = match (self.at, is_older) {
            (None, true) if n > 0 => {
                self.draft = self.text();
                Some(n - 1)
            }
            (Some(at), true) => Some(at.saturating_sub(1)),
            (Some(at), false) if at + 1 < n => Some(at + 1),
            (Some(_), false) => None,
            (None, _) => return,
        };
        self.at = at;
        let text = at.map_or(self.draft.as_str(), |at| self.past[at].as_str());
        self.area = area_of(text);
    }

    pub fn key(&mut self, key: KeyEvent) -> Edited {
        let edited = match std::mem::take(&mut self.mode) {
            Mode::Typing => self.type_key(key),
            Mode::Opening(field) => self.open_key(field, key),
        };
        self.cut_again();
        edited
    }

    /// A key while no path is typed.
    fn type_key(&mut self, key: KeyEvent) -> Edited {
        let has_modifier = key
            .modifiers
            .intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Esc => return Edited::Dismissed,
            KeyCode::Enter if !has_modifier => return self.submit(),
            KeyCode::Enter => self.area.insert_newline(),
            KeyCode::Up if self.area.cursor().0 == 0 => self.turn(true),
            KeyCode::Down if self.area.cursor().0 + 1 == self.area.lines().len() => {
                self.turn(false);
            }
            KeyCode::Left if key.modifiers == KeyModifiers::ALT => self.step_token(false),
            KeyCode::Right if key.modifiers == KeyModifiers::ALT => self.step_token(true),
            KeyCode::Char('r') if key.modifiers == KeyModifiers::CONTROL => return Edited::Search,
            KeyCode::Char('r') if key.modifiers == KeyModifiers::ALT => {
                self.area.redo();
            }
            KeyCode::Char('o') if key.modifiers == KeyModifiers::CONTROL => {
                self.mode = Mode::Opening(PathField::default());
            }
            KeyCode::Char('g') if key.modifiers == KeyModifiers::CONTROL => {
                self.problem = None;
                return Edited::Outside(self.text());
            }
            KeyCode::Char(letter) if key.modifiers == KeyModifiers::CONTROL => {
                self.edit(key, letter)
            }
            _ => {
                self.area.input(key);
            }
        }
        self.problem = None;
        Edited::Going
    }

    /// Applies a Ctrl-letter as a shell does; the text area's own keys sometimes differ.
    fn edit(&mut self, key: KeyEvent, letter: char) {
        let cursor = self.area.cursor();
        let (row, column) = (cursor.0, cursor.1);
        let length = self.area.lines()[row].chars().count();
        match letter {
            // At the start of a line there is nothing to delete, and the line above must stay.
            'u' if column > 0 => {
                self.area.delete_line_by_head();
            }
            'u' => {}
            'k' if column < length => {
                self.area.delete_line_by_end();
            }
            'k' => {}
            'w' => self.delete_blank_separated_word(),
            'a' => self.area.move_cursor(CursorMove::Head),
            'e' => self.area.move_cursor(CursorMove::End),
            // Terminals send Ctrl-_ as one of these.
            '_' | '7' | '/' => {
                self.area.undo();
            }
            _ => {
                self.area.input(key);
            }
        }
    }

    /// Deletes back to the space before the cursor: a word with its punctuation, as a shell does.
    fn delete_blank_separated_word(&mut self) {
        let cursor = self.area.cursor();
        let (row, column) = (cursor.0, cursor.1);
        let before: Vec<char> = self.area.lines()[row].chars().take(column).collect();
        let n_blanks = before
            .iter()
            .rev()
            .take_while(|c| c.is_whitespace())
            .count();
        let letters = before.iter().rev().skip(n_blanks);
        let n = n_blanks + letters.take_while(|c| !c.is_whitespace()).count();
        self.area.move_cursor(CursorMove::Head);
        for _ in 0..column - n {
            self.area.move_cursor(CursorMove::Forward);
        }
        self.area.delete_str(n);
    }

    pub fn paste(&mut self, text: &str) {
        match &mut self.mode {
            Mode::Typing => {
                self.area.insert_str(text);
                self.problem = None;
            }
            Mode::Opening(field) => field.path.push_str(text.trim()),
        }
        self.cut_again();
    }

    fn submit(&mut self) -> Edited {
        let text = self.text();
        if text.trim().is_empty() {
            self.problem = Some("nothing to run: type something, or press Esc".to_owned());
            return Edited::Going;
        }
        if self.holds == Holds::Picture {
            return Edited::Submitted(Request {
                source: Source::picture(text.trim()),
                ..Request::text("")
            });
        }
        if self.holds == Holds::Values {
            return match Values::read(Path::new(text.trim())) {
                Ok(values) => Edited::Submitted(Request {
                    source: Source::Values(values),
                    ..Request::text("")
                }),
                Err(e) => {
                    self.problem = Some(e.to_string());
                    Edited::Going
                }
            };
        }
        if self.holds == Holds::Text {
            return Edited::Submitted(Request::text(text));
        }
        let words = text
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|word| !word.is_empty());
        match words
            .map(|word| word.parse().map_err(|_| word))
            .collect::<Result<Vec<u32>, &str>>()
        {
            Ok(ids) => Edited::Submitted(Request::ids(ids)),
            Err(word) => {
                self.problem = Some(format!("expected token ids, found {word:?}"));
                Edited::Going
            }
        }
    }
}
