//! The page of the catalogue of readings: the doc comments of the families' own files.

use std::fmt::Write as _;

use super::FAMILIES;

/// Every family's page, for the docs.
pub fn readings_page() -> String {
    let mut all = "# Readings\n\nGenerated from the families' own files. The check `trained-otherwise` asks under which of these readings the weights of a\ncheckpoint explain a text best.\n".to_owned();
    for family in FAMILIES {
        let lines = family.source.lines();
        let lines = lines.take_while(|line| line.starts_with("//!"));
        let text: Vec<&str> = lines
            .map(|line| line.trim_start_matches("//!").trim_start_matches(' '))
            .collect();
        let _ = write!(all, "\n## {}\n\n{}\n", family.id, text.join("\n"));
    }
    all
}
