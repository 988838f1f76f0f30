//! Result of comparing two checkpoints, traces or tables: text and Markdown, JSON, and an HTML page.

mod document;
mod page;
mod prompt_words;
mod words;

pub use document::Document;

use std::io::{self, Write};

use attnscope_compare::Comparison;

use super::json::write_pretty;

/// A comparison with the names of its two sides.
pub struct Difference<'a> {
    pub a: &'a str,
    pub b: &'a str,
    pub comparison: &'a Comparison,
    /// Remarks printed with the numbers: what-ifs, how the inputs were matched.
    pub notes: Vec<String>,
    /// Why the two were not run side by side; `None` if they were.
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
