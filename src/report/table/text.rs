//! A table as text for people.

use super::{Cell, Table};
use crate::text_table::text_table;

impl Table {
    /// Formats the table under the columns' names. Columns that are empty in every row are left out.
    pub fn text(&self) -> String {
        let is_filled = |idx: &usize| self.rows.iter().any(|row| row[*idx] != Cell::Empty);
        let shown: Vec<usize> = (0..self.columns.len()).filter(is_filled).collect();
        let titles: Vec<&str> = shown.iter().map(|idx| self.columns[*idx].id).collect();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| shown.iter().map(|idx| row[*idx].shown()).collect())
            .collect();
        text_table(&titles, &rows)
    }
}
