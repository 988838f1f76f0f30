//! Description of a column.

use serde::Serialize;

/// Type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Text,
    Integer,
    Number,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name in every format.
    pub id: &'static str,
    pub kind: Kind,
    /// Unit, if it has one.
    pub unit: Option<&'static str>,
    /// Whether every row has a value.
    pub is_required: bool,
    pub about: &'static str,
}

impl Column {
    /// A column of texts; some rows may have none.
    pub const fn text(id: &'static str, about: &'static str) -> Self {
        Self::new(id, Kind::Text, about)
    }

    /// A column of indices or counts; some rows may have none.
    pub const fn integer(id: &'static str, about: &'static str) -> Self {
        Self::new(id, Kind::Integer, about)
    }

    /// A column of numbers without a unit; some rows may have none.
    pub const fn number(id: &'static str, about: &'static str) -> Self {
        Self::new(id, Kind::Number, about)
    }

    /// A column without a unit; some rows may have no value.
    pub const fn new(id: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            id,
            kind,
            unit: None,
            is_required: false,
            about,
        }
    }

    /// The column with a unit; an empty text means none.
    pub const fn in_unit(self, unit: &'static str) -> Self {
        let unit = if unit.is_empty() { None } else { Some(unit) };
        Self { unit, ..self }
    }

    /// The column, with a value in every row or not.
    pub const fn required(self, is_required: bool) -> Self {
        Self {
            is_required,
            ..self
        }
    }
}
