//! A table as a value: described columns, and rows of cells. Text, CSV, JSON, Markdown and Parquet are written from it.

mod cell;
mod column;
mod csv;
mod json;
mod markdown;
mod parquet;
mod row;
mod text;

pub use self::cell::{Cell, CellValue};
pub use self::column::{Column, Kind};
pub use self::csv::write_cells;
pub use self::json::{Keyed, keyed_schema};
pub use self::parquet::TableWriter;
pub use self::row::TableRow;

/// Columns and rows. Every row has a cell for each column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table of rows of one type; without rows it still has the columns.
    pub fn of<R: TableRow>(rows: impl IntoIterator<Item = R>) -> Self {
        Self {
            columns: R::COLUMNS.to_vec(),
            rows: rows.into_iter().map(TableRow::cells).collect(),
        }
    }

    /// Returns the indices of columns that have a value in some row.
    fn filled_columns(&self) -> Vec<usize> {
        let is_filled = |idx: &usize| self.rows.iter().any(|row| row[*idx] != Cell::Empty);
        (0..self.columns.len()).filter(is_filled).collect()
    }
}
