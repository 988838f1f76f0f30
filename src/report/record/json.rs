//! A row of the table as a JSON object.

use std::io::{self, Write};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::columns::names;
use super::table::Row;
use crate::Number;

/// Writes one row on one line: every column by its name, null for missing values.
///
/// # Errors
/// When the target cannot be written.
pub fn write_json_row(row: &Row, to: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(to, &Shown(row)).map_err(io::Error::from)
}

struct Shown<'a>(&'a Row);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let row = self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("checkpoint", &row.checkpoint)?;
        map.serialize_entry("step", &row.step)?;
        map.serialize_entry("prompt", &row.prompt)?;
        map.serialize_entry("n_tokens", &row.n_tokens)?;
        map.serialize_entry("loss", &row.loss.map(Number))?;
        map.serialize_entry("stack", &row.stack)?;
        map.serialize_entry("layer", &row.layer)?;
        map.serialize_entry("head", &row.head)?;
        // The remaining names are those of statistics.
        for (name, value) in names().skip(super::COLUMNS.len()).zip(&row.stats) {
            map.serialize_entry(name, &value.map(Number))?;
        }
        map.end()
    }
}
