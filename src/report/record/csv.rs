//! The table as CSV.

use std::io::{self, Write};

use super::columns::columns;
use super::table::{Row, Table};
use crate::table::write_cells;

impl Table {
    /// Writes a header and the rows. Missing values are empty; numbers that are not finite are words.
    ///
    /// Unless `is_raw`, texts that a spreadsheet would compute are marked as text.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_csv(&self, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
        write_csv_header(to)?;
        write_csv_rows(&self.rows, is_raw, to)
    }
}

/// Writes only the header of a table.
///
/// # Errors
/// When the target cannot be written.
pub fn write_csv_header(to: &mut impl Write) -> io::Result<()> {
    let no_rows: [Vec<_>; 0] = [];
    write_cells(Some(columns()), no_rows, false, to)
}

/// Writes some rows without a header.
///
/// # Errors
/// When the target cannot be written.
pub fn write_csv_rows(rows: &[Row], is_raw: bool, to: &mut impl Write) -> io::Result<()> {
    write_cells(None, rows.iter().map(Row::cells), is_raw, to)
}
