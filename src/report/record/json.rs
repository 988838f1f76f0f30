//! A row of the table as a JSON object.

use std::io::{self, Write};

use super::columns::columns;
use super::table::Row;
use crate::table::Keyed;

/// Writes one row on one line: every column by its name, null for missing values.
///
/// # Errors
/// When the target cannot be written.
pub fn write_json_row(row: &Row, to: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(to, &Keyed(columns(), &row.cells())).map_err(io::Error::from)
}
