//! A table as JSON: one object per row, with a key per column.

use schemars::{Schema, json_schema};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Cell, Column, Kind, Table};

/// A row as an object.
pub struct Keyed<'a>(pub &'a [Column], pub &'a [Cell]);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(column.id, cell)?;
        }
        map.end()
    }
}

impl Table {
    /// The rows as objects.
    pub fn keyed(&self) -> Vec<Keyed<'_>> {
        self.rows
            .iter()
            .map(|row| Keyed(&self.columns, row))
            .collect()
    }
}

/// The schema of a list of rows, each with any of the columns: texts are strings, numbers may be words such as `"NaN"`, and
/// absent values are null.
pub fn keyed_schema(columns: impl IntoIterator<Item = Column>) -> Schema {
    let kinds = |column: &Column| match column.kind {
        Kind::Text => vec!["string", "null"],
        Kind::Integer => vec!["integer", "null"],
        Kind::Number => vec!["number", "string", "null"],
    };
    let properties: serde_json::Map<String, serde_json::Value> = columns
        .into_iter()
        .map(|column| {
            let of = serde_json::json!({ "type": kinds(&column) });
            (column.id.to_owned(), of)
        })
        .collect();
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": properties,
            "additionalProperties": false
        }
    })
}
