//! Merges the rows of all units in the order of the table, a few at a time.
//!
//! Units of a checkpoint are merged row by row: the table is in the order of prompt ids, but chunks may overlap in it. A unit
//! is opened at its first prompt. If too many units would be open at once, some are merged into temporary files first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::io::BufWriter;
use std::path::PathBuf;

use attnscope_compute::error::{Error, Result};
use attnscope_report::record::{About, ParquetReader, ParquetWriter, Row, in_order};
use tempfile::NamedTempFile;

use super::listing::Unit;

/// Most units open at once; each has some hundreds of rows in memory.
const MOST_OPEN: usize = 64;

/// A file of rows in the order of the table.
struct Source<'a> {
    path: PathBuf,
    /// Rank of the file where two checkpoints of one name have rows for the same place.
    nth: usize,
    /// Prompts of the first and the last row.
    span: (String, String),
    takes: Option<&'a BTreeSet<String>>,
    /// Whether it is a unit's own file, not an intermediate merge of several units.
    is_unit: bool,
}

/// Passes the rows of all units to `each` in the order of the table; returns the metadata of each target's rows.
/// `opened` is called as each unit is reached.
///
/// # Errors
/// When a file of rows cannot be read, or `each` refuses a row.
pub fn merged<'a>(
    units: &'a [Unit],
    opened: &mut dyn FnMut(),
    mut each: impl FnMut(Row) -> Result<()>,
) -> Result<Vec<(&'a Unit, About)>> {
    let mut abouts = Vec::new();
    for group in
        units.chunk_by(|a, b| (a.step, &a.record.checkpoint) == (b.step, &b.record.checkpoint))
    {
        let mut sources = Vec::new();
        for unit in group {
            let Some(path) = &unit.rows else { continue };
            // The metadata is the same for all units of a target: read it once.
            let is_known = abouts.last().is_some_and(|(known, _): &(&Unit, About)| {
                known.nth.0 == unit.nth.0 && known.record.checkpoint == unit.record.checkpoint
            });
            if !is_known {
                abouts.push((unit, ParquetReader::open(path)?.about()));
            }
            sources.push(Source::of(unit, sources.len(), path));
        }
        sources.sort_by(|a, b| a.span.cmp(&b.span));
        // Intermediate files are removed once the group is merged.
        let mut made = Vec::new();
        while n_overlapping(&sources) > MOST_OPEN {
            sources = fewer(sources, &mut made, opened)?;
        }
        merge(sources, opened, &mut each)?;
    }
    Ok(abouts)
}

impl<'a> Source<'a> {
    fn of(unit: &'a Unit, nth: usize, path: &std::path::Path) -> Self {
        let prompts = &unit.record.prompts;
        let bound = |prompt: Option<&String>| prompt.cloned().unwrap_or_default();
        Self {
            path: path.to_path_buf(),
            nth,
            span: (bound(prompts.iter().min()), bound(prompts.iter().max())),
            takes: unit.takes.as_ref(),
            is_unit: true,
        }
    }
}

/// Returns the largest number of sources open at once. Sources are sorted by their first prompt.
fn n_overlapping(sources: &[Source<'_>]) -> usize {
    let mut ends = BinaryHeap::new();
    let mut most = 0;
    for source in sources {
        while ends
            .peek()
            .is_some_and(|Reverse(end)| *end < &source.span.0)
        {
            ends.pop();
        }
        ends.push(Reverse(&source.span.1));
        most = most.max(ends.len());
    }
    most
}

/// Merges neighbouring sources into intermediate files.
fn fewer<'a>(
    sources: Vec<Source<'a>>,
    made: &mut Vec<NamedTempFile>,
    opened: &mut dyn FnMut(),
) -> Result<Vec<Source<'a>>> {
    let mut fewer = Vec::new();
    let mut sources = VecDeque::from(sources);
    while !sources.is_empty() {
        let some: Vec<Source<'a>> = sources.drain(..MOST_OPEN.min(sources.len())).collect();
        let nth = some.iter().map(|source| source.nth).min();
        let first = some.iter().map(|source| source.span.0.clone()).min();
        let last = some.iter().map(|source| source.span.1.clone()).max();
        let file = NamedTempFile::new()
            .map_err(|e| Error::file(std::env::temp_dir(), format!("cannot be written ({e})")))?;
        let path = file.path().to_path_buf();
        let cannot = |e| Error::file(&path, format!("cannot be written ({e})"));
        let mut writer = ParquetWriter::for_pieces(BufWriter::new(&file)).map_err(cannot)?;
        merge(some, opened, &mut |row| writer.add(&row).map_err(cannot))?;
        writer.finish(&About::default()).map_err(cannot)?;
        fewer.push(Source {
            path,
            nth: nth.unwrap_or_default(),
            span: (first.unwrap_or_default(), last.unwrap_or_default()),
            takes: None,
            is_unit: false,
        });
        made.push(file);
    }
    Ok(fewer)
}

/// An open source and the rows read ahead from it.
struct Open<'a> {
    nth: usize,
    reader: ParquetReader,
    rows: VecDeque<Row>,
    takes: Option<&'a BTreeSet<String>>,
}

impl<'a> Open<'a> {
    /// Opens a source; `None` if it has no rows.
    fn new(source: &Source<'a>) -> Result<Option<Self>> {
        let open = Self {
            nth: source.nth,
            reader: ParquetReader::open(&source.path)?,
            rows: VecDeque::new(),
            takes: source.takes,
        };
        open.filled()
    }

    /// Reads ahead so that a row is available; `None` at the end.
    fn filled(mut self) -> Result<Option<Self>> {
        while self.rows.is_empty() {
            let Some(mut rows) = self.reader.next_rows()? else {
                return Ok(None);
            };
            if let Some(takes) = self.takes {
                rows.retain(|row| takes.contains(&row.prompt));
            }
            self.rows = rows.into();
        }
        Ok(Some(self))
    }
}

/// The source with the next row is the greatest, since the heap is a max-heap.
impl Ord for Open<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = match (self.rows.front(), other.rows.front()) {
            (Some(own), Some(others)) => in_order(own, others),
            _ => Ordering::Equal,
        };
        order.then_with(|| self.nth.cmp(&other.nth)).reverse()
    }
}

impl PartialOrd for Open<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open<'_> {}

fn merge(
    sources: Vec<Source<'_>>,
    opened: &mut dyn FnMut(),
    each: &mut impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let mut waiting = VecDeque::from(sources);
    let mut open: BinaryHeap<Open<'_>> = BinaryHeap::new();
    loop {
        let next = open.peek().and_then(|top| top.rows.front());
        let is_due = |source: &Source<'_>| next.is_none_or(|row| source.span.0 <= row.prompt);
        if waiting.front().is_some_and(is_due) {
            if let Some(source) = waiting.pop_front() {
                if source.is_unit {
                    opened();
                }
                open.extend(Open::new(&source)?);
            }
            continue;
        }
        let Some(mut top) = open.pop() else {
            return Ok(());
        };
        // While no other source is due, take rows without going through the heap.
        let bound = waiting.front().map(|source| source.span.0.as_str());
        while let Some(row) = top.rows.pop_front() {
            each(row)?;
            let is_next = top.rows.front().is_some_and(|row| {
                bound.is_none_or(|bound| row.prompt.as_str() < bound)
                    && open.peek().is_none_or(|other| top > *other)
            });
            if !is_next {
                break;
            }
        }
        open.extend(top.filled()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checks::stats::STATISTICS;
    use attnscope_report::UnitRecord;
    use attnscope_report::record::Table;

    fn row(prompt: &str, layer: u64) -> Row {
        Row {
            checkpoint: "step-1".to_owned(),
            step: Some(1),
            prompt: prompt.to_owned(),
            n_tokens: 3,
            loss: None,
            stack: None,
            layer,
            head: None,
            stats: vec![None; STATISTICS.len()],
        }
    }

    /// Writes units of prompts, each with two layers.
    fn units(directory: &std::path::Path, chunks: &[Vec<String>]) -> Vec<Unit> {
        let unit = |(nth, prompts): (usize, &Vec<String>)| {
            let mut sorted = prompts.clone();
            sorted.sort();
            let rows = sorted.iter().flat_map(|id| [row(id, 0), row(id, 1)]);
            let table = Table {
                rows: rows.collect(),
                ..Table::default()
            };
            let path = directory.join(format!("{nth}.parquet"));
            let mut file = std::fs::File::create(&path).expect("a file");
            table.write_part(&mut file).expect("writes");
            let id = nth.to_string();
            Unit {
                record: UnitRecord::ended(id, "step-1".to_owned(), prompts.clone(), None),
                rows: Some(path),
                step: Some(1),
                nth: (0, nth),
                takes: None,
            }
        };
        chunks.iter().enumerate().map(unit).collect()
    }

    fn prompts_of(units: &[Unit]) -> Vec<String> {
        let mut seen = Vec::new();
        let each = |row: Row| {
            seen.push(row);
            Ok(())
        };
        merged(units, &mut || {}, each).expect("merges");
        assert!(seen.is_sorted_by(|a, b| in_order(a, b).is_lt()));
        seen.chunks(2).map(|rows| rows[0].prompt.clone()).collect()
    }

    #[test]
    fn merged_chunks_give_rows_in_table_order_whatever_their_order() {
        let directory = tempfile::tempdir().expect("a directory");
        // Default ids sort as text: 10 comes before 9, so that all chunks overlap; there are more of them than may be open.
        let n = 3 * MOST_OPEN;
        let ids: Vec<String> = (0..n).map(|id| id.to_string()).collect();
        let chunks: Vec<Vec<String>> = ids.chunks(2).map(<[String]>::to_vec).collect();
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!(prompts_of(&units(directory.path(), &chunks)), sorted);
    }

    #[test]
    fn merging_leaves_out_prompts_that_a_later_plan_has() {
        let directory = tempfile::tempdir().expect("a directory");
        let chunk = |ids: [&str; 2]| ids.map(str::to_owned).to_vec();
        let mut units = units(directory.path(), &[chunk(["a", "b"]), chunk(["b", "c"])]);
        units[1].takes = Some(BTreeSet::from(["c".to_owned()]));
        assert_eq!(prompts_of(&units), ["a", "b", "c"]);
    }
}
