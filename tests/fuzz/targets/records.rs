//! The table of statistics, as CSV and as Parquet.

use attnscope_checks::stats::STATISTICS;
use attnscope_report::record::{About, Row, Table};

use super::Target;
use crate::seeds::{Kind, Seed};

/// A table of a few rows, with every kind of gap.
fn table() -> Table {
    let row = |layer, head: Option<u64>| Row {
        checkpoint: "step-50".to_owned(),
        step: head.map(|_| 50),
        prompt: "a, \"b\"".to_owned(),
        n_tokens: 12,
        loss: head.map(|head| head as f64 / 3.0),
        stack: head.map(|_| "cross".to_owned()),
        layer,
        head,
        stats: (0..STATISTICS.len())
            .map(|idx| (idx % 3 != 0).then_some(if idx == 1 { f64::NAN } else { idx as f64 / 7.0 }))
            .collect(),
    };
    Table {
        about: About::default(),
        rows: vec![row(0, None), row(0, Some(0)), row(0, Some(1)), row(1, None)],
    }
}

/// The table as a file.
pub fn parquet() -> Vec<u8> {
    let mut bytes = Vec::new();
    table().write_parquet(&mut bytes).expect("writes to memory");
    bytes
}

pub const PARQUET: Target = Target {
    name: "parquet",
    n_quick: 3_000,
    seeds: || vec![Seed::ending(Kind::Bytes, "parquet", parquet())],
    tokens: &["PAR1", "checkpoint", "n_tokens", "layer", "attnscope"],
    read: |path| {
        Table::read_parquet(path)
            .map(drop)
            .map_err(|e| e.to_string())
    },
};

pub const CSV: Target = Target {
    name: "csv",
    n_quick: 3_000,
    seeds: || {
        let mut bytes = Vec::new();
        table()
            .write_csv(false, &mut bytes)
            .expect("writes to memory");
        vec![Seed::ending(Kind::Lines, "csv", bytes)]
    },
    tokens: &[
        "checkpoint",
        ",",
        "\"",
        "\r\n",
        "NaN",
        "-Infinity",
        "1e400",
        "-1",
        "'=",
    ],
    read: |path| Table::read_csv(path).map(drop).map_err(|e| e.to_string()),
};
