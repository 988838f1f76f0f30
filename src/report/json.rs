//! The report as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::document::{CheckpointRecord, Report, SEVERAL, SeveralReport};
use super::plain::is_hidden;

/// Writes the report, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_json(report: &Report, to: &mut impl Write) -> std::io::Result<()> {
    write_pretty(report, to)
}

/// Writes the results of several checkpoints.
///
/// # Errors
/// When the target cannot be written.
pub fn write_several(
    checkpoints: Vec<CheckpointRecord>,
    to: &mut impl Write,
) -> std::io::Result<()> {
    let version = SEVERAL;
    write_pretty(
        &SeveralReport {
            version,
            checkpoints,
        },
        to,
    )
}

/// Writes any document, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_pretty(document: &impl Serialize, to: &mut impl Write) -> std::io::Result<()> {
    let mut indented = PrettyFormatter::new();
    document.serialize(&mut Serializer::with_formatter(
        &mut *to,
        Shown(&mut indented),
    ))?;
    to.write_all(b"\n")
}

/// Writes hidden characters in texts as `\uXXXX`; JSON itself requires this only for the first thirty-two.
struct Shown<'f>(&'f mut PrettyFormatter<'static>);

impl Formatter for Shown<'_> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        for piece in text.split_inclusive(is_hidden) {
            let (plain, hidden) = match piece.chars().next_back().filter(|c| is_hidden(*c)) {
                Some(hidden) => (&piece[..piece.len() - hidden.len_utf8()], Some(hidden)),
                None => (piece, None),
            };
            to.write_all(plain.as_bytes())?;
            if let Some(hidden) = hidden {
                // All hidden characters have four-digit codes.
                write!(to, "\\u{:04x}", u32::from(hidden))?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_array(to)
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array(to)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(to, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array_value(to)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object(to)
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object(to)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(to, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object_value(to)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object_value(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped_and_read_back() {
        let text = "a\u{7f}\u{9b}31m\u{202e}é\u{1b}\n";
        let mut written = Vec::new();
        write_pretty(&[text], &mut written).expect("a vector takes everything");
        let written = String::from_utf8(written).expect("text");
        assert_eq!(
            written,
            "[\n  \"a\\u007f\\u009b31m\\u202eé\\u001b\\n\"\n]\n"
        );
        let read: [String; 1] = serde_json::from_str(&written).expect("JSON");
        assert_eq!(read, [text]);
    }
}
