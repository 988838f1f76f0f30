//! The table as CSV.

use std::io::{self, Write};

use super::columns::names;
use super::table::{Row, Table};
use crate::{cell, number};

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
    let mut writer = ::csv::Writer::from_writer(to);
    writer.write_record(names())?;
    writer.flush()
}

/// Writes some rows without a header.
///
/// # Errors
/// When the target cannot be written.
pub fn write_csv_rows(rows: &[Row], is_raw: bool, to: &mut impl Write) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(to);
    for row in rows {
        writer.write_record(cells(row, is_raw))?;
    }
    writer.flush()
}

fn cells(row: &Row, is_raw: bool) -> Vec<String> {
    let text = |text: &str| {
        if is_raw {
            text.to_owned()
        } else {
            cell(text).into_owned()
        }
    };
    let integer = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let figure = |value: Option<f64>| value.map(number).unwrap_or_default();
    let mut cells = vec![
        text(&row.checkpoint),
        integer(row.step),
        text(&row.prompt),
        row.n_tokens.to_string(),
        figure(row.loss),
        row.stack.clone().unwrap_or_default(),
        row.layer.to_string(),
        integer(row.head),
    ];
    cells.extend(row.stats.iter().map(|value| figure(*value)));
    cells
}
