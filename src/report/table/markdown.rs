//! A table as Markdown, for the comment of a pull request.

use super::{Cell, Kind, Table};
use crate::markdown::table;

impl Table {
    /// Formats the table under the columns' names; numbers stand on the right. Columns that are empty in every row are left out.
    pub fn markdown(&self) -> String {
        let shown = self.filled_columns();
        let titles: Vec<(&str, bool)> = shown
            .iter()
            .map(|idx| {
                let column = &self.columns[*idx];
                (column.id, column.kind != Kind::Text)
            })
            .collect();
        let row = |row: &Vec<Cell>| shown.iter().map(|idx| row[*idx].shown()).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(row).collect();
        table(&titles, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CellValue, Column};

    #[test]
    fn numbers_stand_on_the_right_and_texts_cannot_end_a_cell() {
        let columns = vec![
            Column::text("name", "a name"),
            Column::number("value", "a value"),
            Column::number("nowhere", "without a value"),
        ];
        let row = vec!["a|b".to_owned().cell(), 0.5f64.cell(), Cell::Empty];
        let table = Table {
            columns,
            rows: vec![row],
        };
        assert_eq!(
            table.markdown(),
            "| name | value |\n| --- | ---: |\n| a\\|b | 0.5000 |\n"
        );
    }
}
