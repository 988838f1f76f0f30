//! A table as CSV.

use std::io::{self, Write};

use super::cell::Cell;
use super::{Column, Table};

impl Table {
    /// Writes a header of column names, then one line per row. Unless `is_raw`, texts that a spreadsheet would run as formulas
    /// are marked as text.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_csv(&self, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
        write_cells(Some(&self.columns), &self.rows, is_raw, to)
    }
}

/// Writes one line per row of cells, after a header of column names if `columns` are given.
///
/// # Errors
/// When the target cannot be written.
pub fn write_cells<R: AsRef<[Cell]>>(
    columns: Option<&[Column]>,
    rows: impl IntoIterator<Item = R>,
    is_raw: bool,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(to);
    if let Some(columns) = columns {
        writer.write_record(columns.iter().map(|column| column.id))?;
    }
    for row in rows {
        let cells = row.as_ref().iter().map(|cell| cell.csv(is_raw));
        writer.write_record(cells.map(std::borrow::Cow::into_owned))?;
    }
    writer.flush()
}
