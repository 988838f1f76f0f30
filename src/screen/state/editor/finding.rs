//! Looking for an earlier text while one is edited, as Ctrl-R does in a shell.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Edited, Editor, Mode};

/// A search through earlier texts.
#[derive(Debug, Default)]
pub struct Finding {
    pub query: String,
    /// Index of the earlier text shown; `None` if no text holds the query.
    pub at: Option<usize>,
    /// The text that was being typed, which Esc brings back.
    before: String,
}

impl Editor {
    pub(super) fn begin_to_find(&mut self) -> Edited {
        self.problem = None;
        if self.past.is_empty() {
            self.problem = Some("no earlier text yet".to_owned());
        } else {
            self.mode = Mode::Finding(Finding {
                before: self.text(),
                ..Finding::default()
            });
        }
        Edited::Going
    }

    /// A key while an earlier text is looked for.
    pub(super) fn find_key(&mut self, mut finding: Finding, key: KeyEvent) -> Edited {
        self.problem = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let from = finding.at.unwrap_or(self.past.len());
        match key.code {
            KeyCode::Esc => {
                self.replace(&finding.before);
                return Edited::Going;
            }
            KeyCode::Char('r') if is_control => self.find_before(&mut finding, from),
            KeyCode::Char(letter) if !is_control => {
                finding.query.push(letter);
                // The text shown stays if it holds the longer query too.
                self.find_before(&mut finding, from + 1);
            }
            KeyCode::Backspace => {
                finding.query.pop();
                self.find_before(&mut finding, self.past.len());
            }
            KeyCode::Enter => return Edited::Going,
            // Any other key takes the text that is shown, and edits it.
            _ => return self.type_key(key),
        }
        self.mode = Mode::Finding(finding);
        Edited::Going
    }

    /// Shows the newest text before index `end` that holds the query, whatever the case of letters.
    fn find_before(&mut self, finding: &mut Finding, end: usize) {
        let query = finding.query.to_lowercase();
        let known = &self.past[..end.min(self.past.len())];
        let found = known
            .iter()
            .rposition(|text| !query.is_empty() && text.to_lowercase().contains(&query));
        match found {
            Some(at) => {
                let text = self.past[at].clone();
                self.replace(&text);
                finding.at = Some(at);
                self.at = Some(at);
            }
            None if query.is_empty() => finding.at = None,
            None => self.problem = Some(format!("no older text holds {:?}", finding.query)),
        }
    }
}
