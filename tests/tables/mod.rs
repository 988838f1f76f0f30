//! Tables as a notebook reads them: rows of one kind, cells by the names of their columns.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::collections::BTreeMap;

/// One row.
#[derive(Debug, Clone)]
pub struct Row(BTreeMap<String, String>);

impl Row {
    pub fn text(&self, column: &str) -> &str {
        let text = self.0.get(column);
        text.unwrap_or_else(|| panic!("no column {column}"))
    }

    pub fn index(&self, column: &str) -> usize {
        let text = self.text(column);
        text.parse()
            .unwrap_or_else(|_| panic!("{column}: {text:?} in {self:?}"))
    }

    /// A number; words for what is not finite are those that JSON has for them.
    pub fn number(&self, column: &str) -> f64 {
        match self.text(column) {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            text => text
                .parse()
                .unwrap_or_else(|_| panic!("{column}: {text:?} in {self:?}")),
        }
    }
}

/// All rows of a table. Each must have as many cells as the header.
pub fn rows(bytes: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(bytes);
    let header = reader.headers().expect("a header").clone();
    let records = reader.records().map(|record| {
        let record = record.expect("a whole record");
        let cells = header.iter().zip(record.iter());
        Row(cells
            .map(|(name, cell)| (name.to_owned(), cell.to_owned()))
            .collect())
    });
    records.collect()
}

/// The rows of one kind.
pub fn part(bytes: &[u8], name: &str) -> Vec<Row> {
    let all = rows(bytes).into_iter();
    all.filter(|row| row.text("part") == name).collect()
}
