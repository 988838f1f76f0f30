//! Text of files on its way to a terminal: letters that would move the cursor, change colours or turn the order of letters around
//! are shown by their number.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Letters that no reader sees: control codes (C0, DEL, C1), marks of the direction of writing, separators of lines and
/// paragraphs, other format characters without a shape (U+FEFF, tags, …), and noncharacters (U+FFFE, …).
///
/// The joiners U+200C and U+200D are none of them: scripts and emoji are written with them.
pub fn is_hidden(letter: char) -> bool {
    let code = u32::from(letter);
    let is_noncharacter = code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code);
    letter.is_control()
        || is_noncharacter
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A name, a path or a message on one line, whatever letters are in it.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// `\u{…}` in the place of the letters that are meant.
fn escaped(text: &str, is_meant: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Most texts are plain letters, which a look at the bytes tells.
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain || !text.contains(&is_meant) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_meant(letter) {
            // A string takes everything.
            let _ = write!(shown, "{}", letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// A text of several lines: no hidden letter is left but the ends of lines and tabs.
pub fn printable(text: &[u8]) -> Vec<u8> {
    let is_meant = |letter| is_hidden(letter) && letter != '\n' && letter != '\t';
    let text = String::from_utf8_lossy(text);
    escaped(&text, is_meant).into_owned().into_bytes()
}

/// A cell of a table as text: a spreadsheet takes it for no formula.
///
/// What begins with one of these signs is computed when a spreadsheet opens the file; an apostrophe before it says that it is text.
pub fn cell(text: &str) -> Cow<'_, str> {
    if is_computed(text) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A text that [`cell`] made a cell of.
pub fn text_of_cell(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(text) if is_computed(text) => text,
        _ => cell,
    }
}

/// Whether a text is to be marked: one that is marked already gets another mark, so that reading takes away one alone.
fn is_computed(text: &str) -> bool {
    let bare = text.trim_start_matches('\'');
    bare.starts_with(['=', '+', '-', '@', '\t', '\r'])
}

/// A cell of a table that holds numbers and texts alike, and is read by people: numbers stay as they are, minus signs included, and
/// hidden letters of a text are shown by their number.
pub fn cell_or_number(value: &str) -> Cow<'_, str> {
    if value.parse::<f64>().is_ok() {
        return Cow::Borrowed(value);
    }
    match one_line(value) {
        Cow::Borrowed(text) => cell(text),
        Cow::Owned(text) => Cow::Owned(cell(&text).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_do_something_are_shown_by_their_number() {
        assert_eq!(one_line("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(one_line("\n\t\u{7f}\u{9b}"), "\\u{a}\\u{9}\\u{7f}\\u{9b}");
        assert_eq!(
            one_line("\u{202e}\u{2028}\u{2066}"),
            "\\u{202e}\\u{2028}\\u{2066}"
        );
        assert_eq!(
            one_line("\u{feff}\u{fffe}\u{1ffff}\u{fdd0}\u{200b}\u{e0041}"),
            "\\u{feff}\\u{fffe}\\u{1ffff}\\u{fdd0}\\u{200b}\\u{e0041}"
        );
        // Joiners are part of what is written with them.
        assert_eq!(
            one_line("می\u{200c}خواهم 👩\u{200d}💻"),
            "می\u{200c}خواهم 👩\u{200d}💻"
        );
        assert_eq!(one_line("naïve 日本 ▁x 😀"), "naïve 日本 ▁x 😀");
    }

    #[test]
    fn lines_and_tabs_of_a_text_stay() {
        let shown = printable(b"a\tb\n\x1b]0;x\x07\r\n\xff");
        assert_eq!(
            String::from_utf8(shown).expect("text"),
            "a\tb\n\\u{1b}]0;x\\u{7}\\u{d}\n\u{fffd}"
        );
    }

    #[test]
    fn a_cell_is_no_formula() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"] {
            assert_eq!(cell(text), format!("'{text}"));
        }
        for text in ["", "a=1", "▁the", "'x", " =1"] {
            assert_eq!(cell(text), text);
        }
    }

    #[test]
    fn a_cell_for_people_holds_no_hidden_letter() {
        assert_eq!(cell_or_number("-1.5"), "-1.5");
        assert_eq!(cell_or_number("=a\u{1b}[2J"), "'=a\\u{1b}[2J");
        assert_eq!(cell_or_number("a\u{feff}"), "a\\u{feff}");
    }

    #[test]
    fn a_cell_reads_back_as_the_text_it_was() {
        for text in ["=1", "'=1", "''=1", "'a", "a", "", "'", "-1", "@x'"] {
            assert_eq!(text_of_cell(&cell(text)), text);
        }
    }
}
