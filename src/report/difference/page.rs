//! A comparison as Markdown, and as one self-contained HTML file.

use std::fmt::Write as _;

use maud::{DOCTYPE, PreEscaped, html};

use super::Difference;
use crate::markdown::escaped;

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
            let line = |cells: &[String]| {
                let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
                format!("| {} |\n", cells.join(" | "))
            };
            text.push_str(&line(&section.titles));
            let dashes: Vec<&str> = section
                .titles
                .iter()
                .enumerate()
                .map(|(nth, _)| if nth == 0 { "---" } else { "---:" })
                .collect();
            let _ = writeln!(text, "| {} |", dashes.join(" | "));
            for row in &section.rows {
                text.push_str(&line(row));
            }
        }
        text
    }

    /// Returns one HTML file without network access or scripts.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="generator" content={ "attnscope " (env!("CARGO_PKG_VERSION")) };
                    // No name in the page can load or run anything.
                    meta http-equiv="Content-Security-Policy"
                        content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                    title { (self.a) " and " (self.b) " · attnscope" }
                    style { (PreEscaped(include_str!("../html/style.css"))) }
                }
                body {
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
                                                @for title in &section.titles { th { (title) } }
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
                    }
                    footer { "attnscope " (env!("CARGO_PKG_VERSION")) }
                }
            }
        };
        page.into_string()
    }
}
