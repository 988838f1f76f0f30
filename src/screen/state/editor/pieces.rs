//! The tokens of the text while it is typed.

use attnscope_prompt::PromptForm;
use ratatui_textarea::CursorMove;

use super::{Editor, Holds};

/// Longest text, in bytes, that is cut at each key: longer ones would be felt while typing.
const LONGEST: usize = 64 << 10;

/// A text and where its tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    of: String,
    /// Labels of the tokens that stand for a part of the text, and the byte at which each begins.
    pub tokens: Vec<(usize, String)>,
    /// Number of all tokens, with those put around the text.
    pub n: usize,
    /// Index of the token at the cursor; the last one if the cursor is behind the text.
    pub at: usize,
}

impl Editor {
    /// Cuts the text into tokens, if it changed since it was cut last.
    pub fn cut_again(&mut self) {
        let text = self.text();
        let tokenizer = self.prompt_form.as_deref().and_then(PromptForm::tokenizer);
        let Some(tokenizer) =
            tokenizer.filter(|_| self.holds == Holds::Text && text.len() <= LONGEST)
        else {
            self.pieces = None;
            return;
        };
        if self.pieces.as_ref().is_none_or(|pieces| pieces.of != text) {
            // A text that cannot be cut gets its error when it is run.
            self.pieces = tokenizer.cut(&text, true).ok().map(|cut| Pieces {
                tokens: cut
                    .iter()
                    .filter(|token| !token.bytes.is_empty())
                    .map(|token| (token.bytes.start, tokenizer.label(token.id)))
                    .collect(),
                n: cut.len(),
                at: 0,
                of: text,
            });
        }
        let here = self.byte_of_cursor();
        if let Some(pieces) = &mut self.pieces {
            let begun = pieces.tokens.partition_point(|(begin, _)| *begin <= here);
            pieces.at = begun.saturating_sub(1);
        }
    }

    /// Moves the cursor to the beginning of the next token, or of this or the previous one.
    pub(super) fn step_token(&mut self, is_forward: bool) {
        let here = self.byte_of_cursor();
        let text = self.text();
        let Some(pieces) = &self.pieces else {
            self.area.move_cursor(if is_forward {
                CursorMove::WordForward
            } else {
                CursorMove::WordBack
            });
            return;
        };
        // A token of bytes may begin inside a character, where no cursor can be.
        let begins = || {
            let all = pieces.tokens.iter().map(|(begin, _)| *begin);
            all.filter(|begin| text.is_char_boundary(*begin))
        };
        let to = if is_forward {
            begins().find(|begin| *begin > here).unwrap_or(text.len())
        } else {
            begins()
                .take_while(|begin| *begin < here)
                .last()
                .unwrap_or(0)
        };
        self.move_to_byte(to);
    }

    /// The cursor's place in the text, in bytes.
    fn byte_of_cursor(&self) -> usize {
        let cursor = self.area.cursor();
        let (row, column) = (cursor.0, cursor.1);
        let lines = self.area.lines();
        let above: usize = lines[..row].iter().map(|line| line.len() + 1).sum();
        let before = lines[row].chars().take(column);
        above + before.map(char::len_utf8).sum::<usize>()
    }

    fn move_to_byte(&mut self, byte: usize) {
        let text = self.text();
        let before = &text[..byte];
        let row = before.matches('\n').count();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let column = line.chars().count();
        self.area
            .move_cursor(CursorMove::Jump(row as u16, column as u16));
    }
}
