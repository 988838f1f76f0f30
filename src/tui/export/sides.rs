//! The table of a panel with what is supposed told apart: each row says which side it is of, and a change has both.

use std::borrow::Cow;
use std::io;

use super::data;
use crate::report::cell_or_number;
use crate::tui::app::{App, Panel};
use crate::tui::supposed::Side;

/// Name of the last column of every table.
pub const COLUMN: &str = "side";

/// The table of the panel that is open. `is_raw` leaves texts as they are, also those that a spreadsheet would compute.
pub fn csv(app: &mut App, is_raw: bool) -> io::Result<Vec<u8>> {
    let write = data::of(app.panel).csv;
    let shown = app.supposed.as_ref().map(|supposed| supposed.side);
    let sides = match shown {
        // What compares has columns for both, and a story is of no side.
        Some(_) if app.panel.compares() || app.panel == Panel::Story => vec![],
        Some(_) if app.both_runs().is_none() => vec![],
        Some(Side::Difference) => vec![Side::Before, Side::After],
        Some(side) => vec![side],
        None => vec![],
    };
    let mut table = csv::Writer::from_writer(Vec::new());
    if sides.is_empty() {
        add(&mut table, &write(app)?, "", true, is_raw)?;
    }
    for (nth, side) in sides.into_iter().enumerate() {
        app.show_side(side);
        let told = write(app);
        if let Some(side) = shown {
            app.show_side(side);
        }
        add(&mut table, &told?, side.label(), nth == 0, is_raw)?;
    }
    table.into_inner().map_err(|e| e.into_error())
}

/// Adds a table to another, with one more column.
fn add(
    to: &mut csv::Writer<Vec<u8>>,
    table: &[u8],
    side: &str,
    with_header: bool,
    is_raw: bool,
) -> io::Result<()> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.has_headers(false).from_reader(table);
    for (nth, row) in reader.records().enumerate() {
        let row = row?;
        match nth {
            0 if with_header => to.write_record(row.iter().chain([COLUMN]))?,
            0 => {}
            _ if is_raw => to.write_record(row.iter().chain([side]))?,
            _ => {
                let cells = row.iter().map(cell_or_number);
                to.write_record(cells.chain([side.into()]).map(Cow::into_owned))?;
            }
        }
    }
    Ok(())
}
