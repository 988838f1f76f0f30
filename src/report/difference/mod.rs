//! What a comparison of two checkpoints, traces or tables found: as text and Markdown for people, as JSON for programs, as a page.

mod document;
mod page;
mod prompt_words;
mod words;

pub use document::Document;

use std::io::{self, Write};

use attnscope_compare::Comparison;

use super::json::write_pretty;

/// A comparison, and what the two sides are called.
pub struct Difference<'a> {
    pub a: &'a str,
    pub b: &'a str,
    pub comparison: &'a Comparison,
    /// Lines beside the figures: what-ifs, what was matched.
    pub notes: Vec<String>,
    /// Why the two were not run side by side, where they were not.
    pub refused: Option<String>,
}

impl Difference<'_> {
    /// Writes JSON.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(&Document::of(self), to)
    }
}
