//! The text field for editing the prompt.

use std::path::Path;

use attnscope_checkpoint::values::Values;
use attnscope_prompt::{PictureSource, Request, Source};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};

/// A prompt being edited: its text, or its ids if there is no tokenizer.
#[derive(Debug)]
pub struct Editor {
    pub area: TextArea<'static>,
    pub edits_ids: bool,
    /// Whether the text is the path of a picture.
    pub edits_picture: bool,
    /// Whether the text is the path of a file with rows of numbers.
    pub edits_values: bool,
    /// Whether the submitted prompt becomes B.
    pub is_for_second: bool,
    /// Prompts of this and earlier sessions, the newest last.
    pub past: Vec<String>,
    /// Index of the past prompt shown, and the text typed before it.
    pub at: Option<usize>,
    pub draft: String,
    pub problem: Option<String>,
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
}

impl Editor {
    pub fn new(source: &Source) -> Self {
        Self {
            area: area_of(&as_text(source)),
            edits_ids: matches!(source, Source::Ids(_)),
            edits_picture: matches!(source, Source::Picture(_)),
            edits_values: matches!(source, Source::Values(_)),
            is_for_second: false,
            past: Vec::new(),
            at: None,
            draft: String::new(),
            problem: None,
        }
    }

    /// Shows an older or newer prompt, or finally the text being typed.
    fn turn(&mut self, is_older: bool) {
        let n = self.past.len();
        let at = match (self.at, is_older) {
            (None, true) if n > 0 => {
                self.draft = self.area.lines().join("\n");
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
        self.area.insert_str(text);
        self.problem = None;
    }

    fn submit(&mut self) -> Edited {
        let text = self.area.lines().join("\n");
        if text.trim().is_empty() {
            self.problem = Some("nothing to run: type something, or press Esc".to_owned());
            return Edited::Going;
        }
        if self.edits_picture {
            return Edited::Submitted(Request {
                source: Source::picture(text.trim()),
                ..Request::text("")
            });
        }
        if self.edits_values {
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
        if !self.edits_ids {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode) -> Edited {
        editor.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn ids_are_parsed_and_an_invalid_id_is_named() {
        let mut editor = Editor::new(&Source::Ids(vec![1, 2]));
        press(&mut editor, KeyCode::Char('x'));
        assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
        assert!(
            editor.problem.as_ref().is_some_and(|p| p.contains("2x")),
            "{:?}",
            editor.problem
        );
        press(&mut editor, KeyCode::Backspace);
        assert_eq!(
            press(&mut editor, KeyCode::Enter),
            Edited::Submitted(Request::ids(vec![1, 2]))
        );
    }

    #[test]
    fn up_shows_older_prompts_and_down_returns_to_the_typed_text() {
        let mut editor = Editor {
            past: vec!["one".to_owned(), "two".to_owned()],
            ..Editor::new(&Source::Text("new".to_owned()))
        };
        let mut texts = Vec::new();
        for code in [
            KeyCode::Up,
            KeyCode::Up,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Down,
        ] {
            press(&mut editor, code);
            texts.push(editor.area.lines().join(" "));
        }
        assert_eq!(texts, ["two", "one", "one", "two", "new"]);
        press(&mut editor, KeyCode::Down);
        assert_eq!(editor.area.lines(), ["new"]);
    }

    #[test]
    fn an_empty_text_is_not_submitted_and_escape_closes_the_editor() {
        let mut editor = Editor::new(&Source::Text("a".to_owned()));
        press(&mut editor, KeyCode::Backspace);
        assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
        assert!(editor.problem.is_some());
        assert_eq!(press(&mut editor, KeyCode::Esc), Edited::Dismissed);
    }

    #[test]
    fn letters_that_are_shortcuts_elsewhere_are_typed_as_text() {
        let mut editor = Editor::new(&Source::Text(String::new()));
        for c in "q?1".chars() {
            assert_eq!(press(&mut editor, KeyCode::Char(c)), Edited::Going);
        }
        assert_eq!(
            press(&mut editor, KeyCode::Enter),
            Edited::Submitted(Request::text("q?1"))
        );
    }

    #[test]
    fn keys_with_control_edit_as_in_a_shell() {
        let mut editor = Editor::new(&Source::Text("one two.three  four".to_owned()));
        let mut control = |letter: char| {
            editor.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
            (editor.area.lines().join("\n"), editor.area.cursor().1)
        };
        let is = |found: (String, usize), text: &str, column: usize| {
            assert_eq!(found, (text.to_owned(), column));
        };
        is(control('w'), "one two.three  ", 15);
        is(control('w'), "one ", 4);
        is(control('a'), "one ", 0);
        // At the start of a line there is nothing to delete, and Ctrl-U does not undo.
        is(control('u'), "one ", 0);
        is(control('f'), "one ", 1);
        is(control('k'), "o", 1);
        is(control('e'), "o", 1);
        is(control('k'), "o", 1);
        is(control('u'), "", 0);
        is(control('_'), "o", 1);
    }

    #[test]
    fn control_u_clears_what_was_typed_and_keeps_the_line_above() {
        let mut editor = Editor::new(&Source::Text("above\nbelow".to_owned()));
        let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        for _ in 0..3 {
            editor.key(clear);
        }
        assert_eq!(editor.area.lines(), ["above", ""]);
    }

    #[test]
    fn values_are_edited_as_the_path_of_their_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let [first, second] = ["a.csv", "b.csv"].map(|name| directory.path().join(name));
        std::fs::write(&first, "1,2\n").expect("writes");
        let mut editor = Editor::new(&Source::Values(Values::read(&first).expect("reads")));
        assert_eq!(editor.area.lines(), [first.display().to_string()]);
        editor.area = area_of(&second.display().to_string());
        assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
        let problem = editor.problem.clone().expect("a problem");
        assert!(problem.contains("b.csv: cannot be opened"), "{problem}");
        std::fs::write(&second, "3\n").expect("writes");
        match press(&mut editor, KeyCode::Enter) {
            Edited::Submitted(Request {
                source: Source::Values(values),
                ..
            }) => assert_eq!(values.rows(), [vec![3.0]]),
            other => panic!("{other:?}"),
        }
    }
}
