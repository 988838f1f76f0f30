//! The columns of the table in order: the place of a row, then every statistic by its id.

use attnscope_checks::stats::STATISTICS;

/// Version of the columns: changes when a reader of the old columns would misread the new ones.
pub const SCHEMA: u32 = 1;

/// Type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Integer,
    Number,
}

/// A column that identifies a row.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether every row has a value.
    pub is_required: bool,
    pub about: &'static str,
}

/// The columns that identify a row.
pub const COLUMNS: [Column; 8] = [
    column(
        "checkpoint",
        Kind::Text,
        true,
        "base name of the checkpoint",
    ),
    column(
        "step",
        Kind::Integer,
        false,
        "step of the training, where the name or the trainer's state tells it",
    ),
    column("prompt", Kind::Text, true, "id of the prompt"),
    column(
        "n_tokens",
        Kind::Integer,
        true,
        "tokens of the prompt, those of the decoder included",
    ),
    column(
        "loss",
        Kind::Number,
        false,
        "mean loss of the next token on the prompt, in nats",
    ),
    column(
        "stack",
        Kind::Text,
        false,
        "encoder, decoder or cross; empty for models with one stack",
    ),
    column("layer", Kind::Integer, true, "layer, counted from 0"),
    column(
        "head",
        Kind::Integer,
        false,
        "head, counted from 0; empty in rows of whole layers",
    ),
];

const fn column(name: &'static str, kind: Kind, is_required: bool, about: &'static str) -> Column {
    Column {
        name,
        kind,
        is_required,
        about,
    }
}

/// Returns the names of all columns.
pub fn names() -> impl Iterator<Item = &'static str> {
    let places = COLUMNS.iter().map(|column| column.name);
    places.chain(STATISTICS.iter().map(|statistic| statistic.id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn column_names_are_unique() {
        let all: Vec<_> = names().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
