//! A table of effects as one self-contained HTML file.

use std::io::{self, Write};

use maud::{Markup, html};

use super::sheet::EffectReport;
use crate::html::shell;
use crate::table::{Cell, Column, Kind};
use crate::text_table::digits;

/// Returns the first number column, which is drawn as bars around 0, and its largest absolute value.
fn barred(report: &EffectReport) -> Option<(usize, f64)> {
    let columns = report.sheet.table.columns.iter();
    let idx = columns
        .clone()
        .position(|column| column.kind == Kind::Number)?;
    let values = report
        .sheet
        .table
        .rows
        .iter()
        .filter_map(|row| match row[idx] {
            Cell::Number(value) if value.is_finite() => Some(value.abs()),
            _ => None,
        });
    let most = values.fold(0.0, f64::max);
    (most > 0.0).then_some((idx, most))
}

/// Half the width of a bar's cell, in pixels.
const HALF: f64 = 60.0;

fn bar(value: f64, most: f64) -> Markup {
    let length = HALF * (value / most).clamp(-1.0, 1.0);
    let (x, width) = (HALF + length.min(0.0), length.abs());
    let fill = if value < 0.0 { "#b2473e" } else { "#3a6ea5" };
    html! {
        svg width="120" height="10" viewBox="0 0 120 10" role="img" {
            line x1="60" y1="0" x2="60" y2="10" stroke="#888" stroke-width="0.5" {}
            rect x=(format!("{x:.1}")) y="1" width=(format!("{width:.1}")) height="8" fill=(fill) {}
        }
    }
}

impl EffectReport {
    /// Writes the page.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_html(&self, to: &mut impl Write) -> io::Result<()> {
        let sheet = &self.sheet;
        let bars = barred(self);
        let title = |column: &Column| match column.unit {
            Some(unit) => format!("{} ({unit})", column.about),
            None => column.about.to_owned(),
        };
        let heading = format!("{} · effect by {}", self.model.name, self.by);
        let body = html! {
            header {
                h1 { (heading) }
                @if !self.what_if.is_empty() {
                    p.what-if { "What if: " (self.what_if.join(", ")) }
                }
                @if !self.complete {
                    p.note { "Stopped: these rows are what was done until then." }
                }
                @for note in &sheet.notes { p.note { (note) } }
            }
            main {
                @if !sheet.totals.is_empty() {
                    dl.facts {
                        @for (name, value) in &sheet.totals {
                            div { dt { (name) } dd { (digits(*value)) } }
                        }
                    }
                }
                div.scroll { table.figures {
                    thead { tr {
                        @for column in &sheet.table.columns {
                            th.n scope="col" title=(title(column)) { (column.id) }
                        }
                        @if bars.is_some() { th {} }
                    } }
                    tbody { @for row in &sheet.table.rows { tr {
                        @for cell in row { td { (cell.shown()) } }
                        @if let Some((idx, most)) = bars {
                            td { @if let Cell::Number(value) = row[idx] { (bar(value, most)) } }
                        }
                    } } }
                } }
            }
            footer { "attnscope " (env!("CARGO_PKG_VERSION")) }
        };
        to.write_all(shell::page(&heading, &body).as_bytes())
    }
}
