//! The columns of the table in order: the place of a row, then every statistic by its id.

use std::sync::LazyLock;

use attnscope_checks::stats::STATISTICS;

use crate::table::Column;

/// Version of the columns: changes when a reader of the old columns would misread the new ones.
pub const SCHEMA: u32 = 1;

/// The columns that identify a row.
pub const COLUMNS: [Column; 8] = [
    Column::text("checkpoint", "base name of the checkpoint").required(true),
    Column::integer(
        "step",
        "step of the training, where the name or the trainer's state tells it",
    ),
    Column::text("prompt", "id of the prompt").required(true),
    Column::integer(
        "n_tokens",
        "tokens of the prompt, those of the decoder included",
    )
    .required(true),
    Column::number("loss", "mean loss of the next token on the prompt").in_unit("nats"),
    Column::text(
        "stack",
        "encoder, decoder or cross; empty for models with one stack",
    ),
    Column::integer("layer", "layer, counted from 0").required(true),
    Column::integer(
        "head",
        "head, counted from 0; empty in rows of whole layers",
    ),
];

static ALL: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let statistics = STATISTICS.iter();
    let statistics = statistics.map(|of| Column::number(of.id, of.definition).in_unit(of.unit));
    COLUMNS.into_iter().chain(statistics).collect()
});

/// Returns all columns: those that identify a row, then every statistic by its id.
pub fn columns() -> &'static [Column] {
    &ALL
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn column_names_are_unique() {
        let all: Vec<_> = columns().iter().map(|column| column.id).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
