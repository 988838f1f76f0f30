//! Compares two tables of reports.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use attnscope_checks::stats::{Values, index_of};
use attnscope_compare::{Comparison, TableHead};
use attnscope_report::read_baseline;
use attnscope_report::record::Table;
use attnscope_spec::Stack;

use super::{Args, Compared, names};

fn ending(path: &Path) -> Option<&str> {
    path.extension().and_then(|ending| ending.to_str())
}

/// Whether a path has a table's extension.
pub(super) fn is_table(path: &Path) -> bool {
    !path.is_dir() && matches!(ending(path), Some("csv" | "parquet" | "json"))
}

/// Compares two tables, head by head.
pub(super) fn both(args: &Args) -> Result<Compared> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let (a, b) = match (a.checkpoints(), b.checkpoints()) {
        // If each table has only one checkpoint, compare them whatever their names.
        (0..=1, 0..=1) => (a.heads(""), b.heads("")),
        (0..=1, _) => {
            let only = a.only();
            (a.heads(&only), b.heads(&only))
        }
        (_, 0..=1) => {
            let only = b.only();
            (a.heads(&only), b.heads(&only))
        }
        _ => (a.heads_of_all(), b.heads_of_all()),
    };
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    Ok(Compared {
        comparison: Comparison::of_tables((&a, &b), args.tolerance)?,
        names: names([name(&args.a), name(&args.b)], [&args.a, &args.b]),
        notes: Vec::new(),
        refused: None,
    })
}

/// Heads of a table, each with the name of its checkpoint.
struct Heads(Vec<(String, TableHead)>);

impl Heads {
    fn checkpoints(&self) -> usize {
        let names: BTreeSet<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.len()
    }

    /// Returns the name of the only checkpoint.
    fn only(&self) -> String {
        self.0
            .first()
            .map_or(String::new(), |(name, _)| name.clone())
    }

    /// Returns the heads of one checkpoint, or all if the name is empty.
    fn heads(self, checkpoint: &str) -> Vec<TableHead> {
        let heads = self.0.into_iter();
        let heads = heads.filter(|(name, _)| checkpoint.is_empty() || name == checkpoint);
        heads.map(|(_, head)| head).collect()
    }

    /// Returns all heads; prompts of different checkpoints are kept apart.
    fn heads_of_all(self) -> Vec<TableHead> {
        let of_checkpoint = |(name, head): (String, TableHead)| TableHead {
            prompt: format!("{name}: {}", head.prompt),
            ..head
        };
        self.0.into_iter().map(of_checkpoint).collect()
    }
}

/// Reads the heads of a table.
fn read(path: &Path) -> Result<Heads> {
    let table = match ending(path) {
        Some("json") => {
            let heads = of_report(path)?.into_iter();
            return Ok(Heads(heads.map(|head| (String::new(), head)).collect()));
        }
        Some("parquet") => Table::read_parquet(path)?,
        _ => Table::read_csv(path)?,
    };
    let stacks = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];
    let heads = table.rows.iter().filter_map(|row| {
        let label = row.stack.as_deref();
        let head = TableHead {
            prompt: row.prompt.clone(),
            stack: stacks.into_iter().find(|stack| stack.label() == label)?,
            layer_idx: row.layer as usize,
            head_idx: row.head? as usize,
            loss: row.loss,
            stats: Values::by_id(|id| {
                index_of(id).and_then(|idx| row.stats.get(idx).copied().flatten())
            }),
        };
        Some((row.checkpoint.clone(), head))
    });
    Ok(Heads(heads.collect()))
}

/// Reads the heads of a JSON report.
fn of_report(path: &Path) -> Result<Vec<TableHead>> {
    let mut heads = Vec::new();
    for (prompt, found) in read_baseline(path)? {
        for ((stack, layer_idx, head_idx), stats) in found.places {
            let Some(head_idx) = head_idx else { continue };
            heads.push(TableHead {
                prompt: prompt.clone(),
                stack,
                layer_idx,
                head_idx,
                loss: found.loss,
                stats: Values::by_id(|id| stats.get(id).copied()),
            });
        }
    }
    Ok(heads)
}
