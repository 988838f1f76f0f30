//! Reads the table back from CSV: columns are found by name, and unknown ones are skipped.

use std::path::Path;

use attnscope_checkpoint::{DOCUMENT, read_whole};
use attnscope_checks::stats::STATISTICS;
use attnscope_compute::error::{Error, Result};

use super::columns::COLUMNS;
use super::table::{Row, Table};
use crate::text_of_cell;

impl Table {
    /// Reads a table that was written as CSV.
    ///
    /// # Errors
    /// When it cannot be read, lacks a column, or a cell does not fit its column; the error names the line.
    pub fn read_csv(path: &Path) -> Result<Self> {
        let bytes = read_whole(path, DOCUMENT)?;
        let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
        let damaged = |e: ::csv::Error| Error::file(path, format!("expected a table, found {e}"));
        let header = reader.headers().map_err(damaged)?.clone();
        let place = |name: &str| header.iter().position(|title| title == name);
        let mut places = [None; COLUMNS.len()];
        for (at, column) in places.iter_mut().zip(&COLUMNS) {
            *at = place(column.id);
            if at.is_none() && column.is_required {
                let problem = format!("expected a table with a column {}, found none", column.id);
                return Err(Error::file(path, problem));
            }
        }
        let statistics: Vec<Option<usize>> = STATISTICS.iter().map(|s| place(s.id)).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(damaged)?;
            let line = record.position().map_or(0, ::csv::Position::line);
            let cell =
                |at: Option<usize>| at.and_then(|at| record.get(at)).filter(|c| !c.is_empty());
            let wrong = |name: &str, found: &str| {
                let problem = format!("line {line}: {name}: expected a number, found {found:?}");
                Error::file(path, problem)
            };
            let of_place = |idx: usize| cell(places[idx]);
            let integer = |idx: usize| {
                let parse = |text: &str| text.parse().map_err(|_| wrong(COLUMNS[idx].id, text));
                of_place(idx).map(parse).transpose()
            };
            let required = |idx: usize| integer(idx)?.ok_or_else(|| wrong(COLUMNS[idx].id, ""));
            let number = |name: &str, text: Option<&str>| {
                let parse = |text: &str| text.parse::<f64>().map_err(|_| wrong(name, text));
                text.map(parse).transpose()
            };
            let text = |idx: usize| {
                of_place(idx)
                    .map(text_of_cell)
                    .unwrap_or_default()
                    .to_owned()
            };
            let stats = STATISTICS.iter().zip(&statistics);
            rows.push(Row {
                checkpoint: text(0),
                step: integer(1)?,
                prompt: text(2),
                n_tokens: required(3)?,
                loss: number("loss", of_place(4))?,
                stack: of_place(5).map(str::to_owned),
                layer: required(6)?,
                head: integer(7)?,
                stats: stats
                    .map(|(statistic, at)| number(statistic.id, cell(*at)))
                    .collect::<Result<_>>()?,
            });
        }
        Ok(Self {
            rows,
            ..Self::default()
        })
    }
}
