//! The table of a panel as CSV: with two runs each row names its run, and a difference has rows of both.

use std::borrow::Cow;
use std::io;

use attnscope_report::cell_or_number;

use super::data::{self, Sheet};
use crate::state::app::App;
use crate::state::panel::Panel;
use crate::state::runs::Shows;
use crate::state::scene::Scene;

/// Name of the last column of every table.
pub const COLUMN: &str = "side";

/// The table of the open panel as CSV. `is_raw` leaves cells as they are, even those that a spreadsheet would read as formulas.
pub fn csv(app: &App, is_raw: bool) -> io::Result<Vec<u8>> {
    let sheet = data::of(app.panel).sheet;
    let tables = match (&app.runs.b, app.runs.both()) {
        (Some(second), Some(_)) if has_sides(app.panel) => {
            let shown = match app.runs.shows {
                Shows::Difference => vec![Shows::A, Shows::B],
                side => vec![side],
            };
            let of = |side| (sheet(Scene::of(app, side)), second.way.label(side));
            shown.into_iter().map(of).collect()
        }
        _ => vec![(sheet(app.scene()), "")],
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (nth, (table, side)) in tables.into_iter().enumerate() {
        let Sheet { columns, rows } = table.map_err(io::Error::other)?;
        if nth == 0 {
            writer.write_record(columns.into_iter().chain([COLUMN]))?;
        }
        for row in &rows {
            let cells = row.iter().map(|cell| {
                if is_raw {
                    Cow::Borrowed(cell.as_str())
                } else {
                    cell_or_number(cell)
                }
            });
            let row = cells.chain([side.into()]);
            writer.write_record(row.map(Cow::into_owned))?;
        }
    }
    writer.into_inner().map_err(|e| e.into_error())
}

/// Whether a panel's rows each belong to one run: comparing panels have columns for both, stories and trainings for neither.
fn has_sides(panel: Panel) -> bool {
    !panel.compares() && !matches!(panel, Panel::Story | Panel::History)
}
