//! A comparison as Markdown, and as one self-contained HTML file.

use std::fmt::Write as _;
use std::io;

use maud::html;

use super::Difference;
use crate::html::{pairs, shell};
use crate::markdown::{escaped, table};

impl Difference<'_> {
    /// Returns Markdown, short enough for the comment of a pull request.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n", escaped(&self.headline()));
        let _ = writeln!(text, "A: {}\nB: {}", escaped(self.a), escaped(self.b));
        for note in self.all_notes() {
            let _ = write!(text, "\nNote: {}\n", escaped(&note));
        }
        for section in self.sections() {
            let _ = write!(text, "\n### {}\n\n", escaped(&section.title));
            if !section.said.is_empty() {
                let _ = write!(text, "{}\n\n", escaped(&section.said));
            }
            if section.rows.is_empty() {
                continue;
            }
            let titles = section.titles.iter().enumerate();
            let titles: Vec<(&str, bool)> = titles
                .map(|(nth, title)| (title.as_str(), nth > 0))
                .collect();
            text += &table(&titles, &section.rows);
        }
        text
    }

    /// Returns one HTML file without network access; its script sorts and filters the tables.
    ///
    /// # Errors
    /// When a map cannot be drawn.
    pub fn html(&self) -> io::Result<String> {
        let heads = pairs::sections(&self.comparison.prompts)?;
        let body = html! {
            header {
                h1 { (self.headline()) }
                p { "A: " (self.a) }
                p { "B: " (self.b) }
                @for note in self.all_notes() {
                    p.note { "Note: " (note) }
                }
            }
            main {
                @for section in self.sections() {
                    section {
                        h2 { (section.title) }
                        @if !section.said.is_empty() {
                            p { (section.said) }
                        }
                        @if !section.rows.is_empty() {
                            div.scroll { table.sides {
                                thead {
                                    tr {
                                        @for title in &section.titles { th scope="col" { (title) } }
                                    }
                                }
                                tbody {
                                    @for row in &section.rows {
                                        tr {
                                            @for cell in row { td { (cell) } }
                                        }
                                    }
                                }
                            } }
                        }
                    }
                }
                @for section in &heads { (section) }
            }
            footer { "attnscope " (env!("CARGO_PKG_VERSION")) }
        };
        Ok(shell::page(&format!("{} and {}", self.a, self.b), &body))
    }
}
