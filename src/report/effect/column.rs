//! Description of a column in a table of effects.

use serde::Serialize;

/// Type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Text,
    Integer,
    Number,
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub id: &'static str,
    pub kind: Kind,
    /// Unit, if it has one.
    pub unit: Option<&'static str>,
    pub about: &'static str,
}
