//! The table of a panel as CSV: with two runs each row names its run, and a difference has rows of both.

use std::io;

use attnscope_report::one_line;
use attnscope_report::table::{Cell, CellValue, Column, write_cells};

use super::data;
use crate::state::app::App;
use crate::state::panel::Panel;
use crate::state::runs::Shows;
use crate::state::scene::Scene;

/// Name of the last column of every table.
pub const COLUMN: &str = "side";

/// The table of the open panel as CSV. `is_raw` leaves cells as they are, even those that a spreadsheet would read as formulas.
pub fn csv(app: &App, is_raw: bool) -> io::Result<Vec<u8>> {
    let table = data::of(app.panel).table;
    let tables = match (&app.runs.b, app.runs.both()) {
        (Some(second), Some(_)) if has_sides(app.panel) => {
            let shown = match app.runs.shows {
                Shows::Difference => vec![Shows::A, Shows::B],
                side => vec![side],
            };
            let of = |side| {
                (
                    table(Scene::of(app, side)),
                    second.way.label_in_tables(side),
                )
            };
            shown.into_iter().map(of).collect()
        }
        _ => vec![(table(app.scene()), "")],
    };
    let mut csv = Vec::new();
    for (nth, (table, side)) in tables.into_iter().enumerate() {
        let side_column = Column::text(COLUMN, "which run the row belongs to");
        let columns: Vec<Column> = table.columns.into_iter().chain([side_column]).collect();
        let rows = table.rows.into_iter();
        let rows = rows.map(|row| {
            let cells = row
                .into_iter()
                .map(|cell| if is_raw { cell } else { visible(cell) });
            cells.chain([side.cell()]).collect::<Vec<_>>()
        });
        write_cells((nth == 0).then_some(&columns[..]), rows, is_raw, &mut csv)?;
    }
    Ok(csv)
}

/// A cell whose text has no hidden characters: panels show text of any file, and the table may be printed on a terminal.
fn visible(cell: Cell) -> Cell {
    match cell {
        Cell::Text(text) => Cell::Text(one_line(&text).into_owned()),
        other => other,
    }
}

/// Whether a panel's rows each belong to one run: comparing panels have columns for both, stories and trainings for neither.
fn has_sides(panel: Panel) -> bool {
    !panel.compares() && !matches!(panel, Panel::Story | Panel::History | Panel::Prompts)
}
