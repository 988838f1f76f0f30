//! A comparison as Markdown, and as one self-contained HTML file.

use std::fmt::Write as _;

use maud::{DOCTYPE, PreEscaped, html};

use super::Difference;
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
