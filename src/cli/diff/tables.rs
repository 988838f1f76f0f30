//! Two tables of reports.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Args, Compared, names};
use crate::record::Table;
use crate::report::read_baseline;
use attnscope_engine::compare::{Comparison, TableHead};
use attnscope_engine::model::Stack;
use attnscope_engine::stats::{Values, index_of};

fn ending(path: &Path) -> Option<&str> {
    path.extension().and_then(|ending| ending.to_str())
}

/// Whether a path is called like a table.
pub(super) fn is_table(path: &Path) -> bool {
    !path.is_dir() && matches!(ending(path), Some("csv" | "parquet" | "json"))
}

/// Compares two tables, head by head.
pub(super) fn both(args: &Args) -> Result<Compared> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
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

/// The heads of a table.
fn read(path: &Path) -> Result<Vec<TableHead>> {
    let table = match ending(path) {
        Some("json") => return of_report(path),
        Some("parquet") => Table::read_parquet(path)?,
        _ => Table::read_csv(path)?,
    };
    let mut checkpoints: Vec<&str> = table.rows.iter().map(|r| r.checkpoint.as_str()).collect();
    checkpoints.dedup();
    if checkpoints.len() > 1 {
        bail!(
            "{}: expected a table of one checkpoint, found {}: {}, …",
            path.display(),
            checkpoints.len(),
            checkpoints[..2].join(", ")
        );
    }
    let stacks = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];
    let heads = table.rows.iter().filter_map(|row| {
        let label = row.stack.as_deref();
        Some(TableHead {
            prompt: row.prompt.clone(),
            stack: stacks.into_iter().find(|stack| stack.label() == label)?,
            layer_idx: row.layer as usize,
            head_idx: row.head? as usize,
            loss: row.loss,
            stats: Values::by_id(|id| {
                let value = index_of(id).and_then(|idx| row.stats.get(idx).copied().flatten());
                value.unwrap_or(f64::NAN)
            }),
        })
    });
    Ok(heads.collect())
}

/// The heads of a report in JSON.
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
                stats: Values::by_id(|id| stats.get(id).copied().unwrap_or(f64::NAN)),
            });
        }
    }
    Ok(heads)
}
