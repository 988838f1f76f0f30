//! A table as text for people.

use super::Table;
use crate::text_table::text_table;

impl Table {
    /// Formats the table under the columns' names. Columns that are empty in every row are left out.
    pub fn text(&self) -> String {
        let shown = self.filled_columns();
        let titles: Vec<&str> = shown.iter().map(|idx| self.columns[*idx].id).collect();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| shown.iter().map(|idx| row[*idx].shown()).collect())
            .collect();
        text_table(&titles, &rows)
    }
}
