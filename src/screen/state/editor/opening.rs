//! Taking the text of a file into the text field, by a path that Tab completes.

use std::fs;
use std::path::{MAIN_SEPARATOR, Path};

use attnscope_checkpoint::read_regular;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Edited, Editor, Mode};

/// Largest file, in bytes, whose text is taken: no model reads more at once.
const LARGEST: usize = 4 << 20;

/// The path being typed.
#[derive(Debug, Default)]
pub struct PathField {
    pub path: String,
}

impl Editor {
    /// A key while a path is typed.
    pub(super) fn open_key(&mut self, mut field: PathField, key: KeyEvent) -> Edited {
        self.problem = None;
        match key.code {
            KeyCode::Esc => return Edited::Going,
            KeyCode::Enter => match text_of(Path::new(&with_home(field.path.trim()))) {
                Ok(text) => {
                    self.replace(&text);
                    return Edited::Going;
                }
                Err(problem) => self.problem = Some(problem),
            },
            KeyCode::Tab => match completed(&field.path) {
                Some(path) => field.path = path,
                None => self.problem = Some("no file begins with that".to_owned()),
            },
            KeyCode::Backspace => drop(field.path.pop()),
            KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => field.path.clear(),
            KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                field.path.push(letter);
            }
            _ => {}
        }
        self.mode = Mode::Opening(field);
        Edited::Going
    }
}

/// The text of a file, without the line break at its end.
///
/// # Errors
/// When the file cannot be read, is too large, or holds no text.
pub fn text_of(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let bytes = read_regular(path, LARGEST).map_err(|e| format!("{shown}: {e}"))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        format!("{shown}: expected text in UTF-8, found other bytes from byte {at} on")
    })?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The path with the rest that all files share whose names begin with it; `None` if there is no such file.
fn completed(path: &str) -> Option<String> {
    let path = with_home(path);
    let (directory, begun) = match path.rfind(MAIN_SEPARATOR) {
        Some(at) => path.split_at(at + 1),
        None => ("", path.as_str()),
    };
    let place = if directory.is_empty() { "." } else { directory };
    let mut names: Vec<String> = fs::read_dir(place)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_hidden = name.starts_with('.') && !begun.starts_with('.');
            let end = if entry.path().is_dir() { "/" } else { "" };
            (name.starts_with(begun) && !is_hidden).then(|| format!("{name}{end}"))
        })
        .collect();
    names.sort();
    let (first, last) = (names.first()?, names.last()?);
    // What the first and the last in order share, all between them share.
    let shared: String = first
        .chars()
        .zip(last.chars())
        .take_while(|(a, b)| a == b)
        .map(|(letter, _)| letter)
        .collect();
    Some(format!("{directory}{shared}"))
}

/// The path with `~` as the home directory.
fn with_home(path: &str) -> String {
    let home = std::env::var("HOME").ok();
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}
