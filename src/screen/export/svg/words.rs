//! Text as runs: one element for adjacent characters of one style, and one for each symbol whose width differs between fonts.

use ratatui::style::Modifier;

use super::cells::Seen;
use super::glyphs::{Shape, shape_of};
use super::page::Rgb;

/// A run of adjacent characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub column: u32,
    pub row: u32,
    pub n_columns: u32,
    pub text: String,
    pub ink: Rgb,
    pub is_bold: bool,
    pub is_italic: bool,
}

impl Word {
    fn of(cell: &Seen<'_>) -> Self {
        Self {
            column: cell.column,
            row: cell.row,
            n_columns: cell.n_columns,
            text: cell.symbol.to_owned(),
            ink: cell.ink,
            is_bold: cell.modifier.contains(Modifier::BOLD),
            is_italic: cell.modifier.contains(Modifier::ITALIC),
        }
    }

    fn has_style_of(&self, other: &Self) -> bool {
        let style = |word: &Self| (word.row, word.ink, word.is_bold, word.is_italic);
        style(self) == style(other)
    }
}

/// Whether every monospaced font has the symbol, in its usual width.
fn is_usual(symbol: &str) -> bool {
    let mut letters = symbol.chars();
    let (Some(c), None) = (letters.next(), letters.next()) else {
        return false;
    };
    // Latin, Greek, Cyrillic. A soft hyphen is not drawn.
    matches!(c, '!'..='~' | '\u{a1}'..='\u{24f}' | '\u{370}'..='\u{52f}') && c != '\u{ad}'
}

pub fn words(cells: &[Seen<'_>]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    // Whether the next cell may extend the last word.
    let mut is_open = false;
    for cell in cells {
        match shape_of(cell.symbol) {
            Shape::Nothing => {}
            Shape::Letters => {
                let next = Word::of(cell);
                let is_usual = is_usual(cell.symbol);
                let last = words.last_mut().filter(|last| {
                    let gap = next.column.checked_sub(last.column + last.n_columns);
                    // Keep one space inside a run; readers would collapse several.
                    is_open && is_usual && last.has_style_of(&next) && gap.is_some_and(|n| n <= 1)
                });
                match last {
                    Some(last) => {
                        if next.column > last.column + last.n_columns {
                            last.text.push(' ');
                        }
                        last.text.push_str(cell.symbol);
                        last.n_columns = next.column + next.n_columns - last.column;
                    }
                    None => words.push(next),
                }
                is_open = is_usual;
            }
            _ => is_open = false,
        }
    }
    words
}
