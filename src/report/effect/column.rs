//! What a column of a table of effects says of itself.

use serde::Serialize;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Text,
    Integer,
    Number,
}

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub id: &'static str,
    pub kind: Kind,
    /// Unit, where it has one.
    pub unit: Option<&'static str>,
    pub about: &'static str,
}
