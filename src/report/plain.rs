//! Makes text from files safe for a terminal: characters that would move the cursor, change colours or reverse the text direction
//! are shown as their code.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is invisible: control codes (C0, DEL, C1), direction marks, line and paragraph separators,
/// other format characters without a shape (U+FEFF, tags, …), and noncharacters (U+FFFE, …).
///
/// The joiners U+200C and U+200D do not count: scripts and emoji need them.
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

/// Returns a name, a path or a message on one line, whatever characters it contains.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// Replaces the characters for which `is_meant` is true by `\u{…}`.
fn escaped(text: &str, is_meant: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Fast path: most texts are printable ASCII.
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain || !text.contains(&is_meant) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_meant(letter) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Escapes hidden characters in a text of several lines, except line ends and tabs.
pub fn printable(text: &[u8]) -> Vec<u8> {
    let is_meant = |letter| is_hidden(letter) && letter != '\n' && letter != '\t';
    let text = String::from_utf8_lossy(text);
    escaped(&text, is_meant).into_owned().into_bytes()
}

/// Escapes a text for a table cell, so that a spreadsheet does not read it as a formula.
///
/// Spreadsheets compute cells that begin with a sign such as `=`, `+` or `@`; a leading apostrophe marks them as text.
pub fn cell(text: &str) -> Cow<'_, str> {
    if is_computed(text) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the text that [`cell`] escaped.
pub fn text_of_cell(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(text) if is_computed(text) => text,
        _ => cell,
    }
}

/// Whether a text needs the mark. Text that is already marked gets a second mark, so that reading removes only one.
fn is_computed(text: &str) -> bool {
    let bare = text.trim_start_matches('\'');
    bare.starts_with(['=', '+', '-', '@', '\t', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_their_code() {
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
        // Joiners are part of the writing.
        assert_eq!(
            one_line("می\u{200c}خواهم 👩\u{200d}💻"),
            "می\u{200c}خواهم 👩\u{200d}💻"
        );
        assert_eq!(one_line("naïve 日本 ▁x 😀"), "naïve 日本 ▁x 😀");
    }

    #[test]
    fn line_ends_and_tabs_are_kept() {
        let shown = printable(b"a\tb\n\x1b]0;x\x07\r\n\xff");
        assert_eq!(
            String::from_utf8(shown).expect("text"),
            "a\tb\n\\u{1b}]0;x\\u{7}\\u{d}\n\u{fffd}"
        );
    }

    #[test]
    fn an_escaped_cell_is_not_a_formula() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"] {
            assert_eq!(cell(text), format!("'{text}"));
        }
        for text in ["", "a=1", "▁the", "'x", " =1"] {
            assert_eq!(cell(text), text);
        }
    }

    #[test]
    fn an_escaped_cell_reads_back_as_the_original_text() {
        for text in ["=1", "'=1", "''=1", "'a", "a", "", "'", "-1", "@x'"] {
            assert_eq!(text_of_cell(&cell(text)), text);
        }
    }
}
