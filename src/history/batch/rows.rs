//! Merges the rows of all units in the order of the table, a few at a time.
//!
//! Blocks of a checkpoint are merged row by row: the table is in the order of prompt ids, but chunks may overlap in it. A block
//! is opened at its first prompt. If too many blocks would be open at once, some are merged into temporary files first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use attnscope_compute::error::{Error, Result};
use attnscope_report::record::{About, ParquetReader, ParquetWriter, Row, in_order};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tempfile::NamedTempFile;

use super::listing::{Block, Group};
use super::parts::RowsPlace;

/// Most units open at once; each has some hundreds of rows in memory.
const MOST_OPEN: usize = 64;

/// Rows passed from the thread that reads them at a time.
const PASSED: usize = 256;
/// Most such portions that wait.
const WAITING: usize = 16;
/// Sources opened ahead, on all threads.
const AHEAD: usize = 16;

/// Rows in the order of the table, of one file or of a part of one.
struct Source<'a> {
    place: RowsPlace,
    /// Rank of the rows where two checkpoints of one name have rows for the same place.
    nth: usize,
    /// Prompts of the first and the last row; `None` if they are unknown.
    span: Option<(String, String)>,
    takes: Option<&'a BTreeSet<String>>,
    /// Number of units that are reached with it; none in intermediate merges of several units.
    n_units: usize,
}

/// What the rows of a checkpoint say of their origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub checkpoint: String,
    pub step: Option<u64>,
    /// Index of the checkpoint among those of all plans.
    pub target: usize,
    pub about: About,
}

/// Passes the rows of all checkpoints to `each` in the order of the table; returns the metadata of each target's rows.
/// `opened` is called with the number of units as they are reached. Rows are read on another thread.
///
/// # Errors
/// When rows cannot be read, or `each` refuses a row.
pub fn merged(
    groups: &[Group],
    opened: &(dyn Fn(usize) + Sync),
    each: impl FnMut(Row) -> Result<()>,
) -> Result<Vec<Origin>> {
    beside(each, |pass| {
        let mut origins: Vec<Origin> = Vec::new();
        for group in groups {
            let mut last = None;
            let mut sources = Vec::new();
            for block in &group.blocks {
                // The metadata is the same for all units of a target: read it once.
                if last != Some(block.target) {
                    last = Some(block.target);
                    let reader = ParquetReader::open_part(&block.place.path, block.place.part)?;
                    origins.push(Origin {
                        checkpoint: group.checkpoint.clone(),
                        step: group.step,
                        target: block.target,
                        about: reader.about(),
                    });
                }
                sources.push(Source::of(block, sources.len()));
            }
            merge_all(sources, opened, pass)?;
        }
        Ok(origins)
    })
}

/// Passes the rows of several tables to `each` in the order of the table.
///
/// # Errors
/// When rows cannot be read, or `each` refuses a row.
pub fn joined(tables: &[PathBuf], each: impl FnMut(Row) -> Result<()>) -> Result<()> {
    let source = |(nth, path): (usize, &PathBuf)| Source {
        place: RowsPlace {
            path: path.clone(),
            part: None,
        },
        nth,
        span: None,
        takes: None,
        n_units: 0,
    };
    beside(each, |pass| {
        let sources = tables.iter().enumerate().map(source).collect();
        merge_all(sources, &|_| {}, pass)
    })
}

/// What takes a row from a merge.
type Pass<'a> = dyn FnMut(Row) -> Result<()> + 'a;

/// Reads rows on another thread and passes them to `each` on this one.
fn beside<T: Send>(
    mut each: impl FnMut(Row) -> Result<()>,
    read: impl FnOnce(&mut Pass<'_>) -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<Row>>(WAITING);
        let reading = scope.spawn(move || {
            let mut rows = Vec::with_capacity(PASSED);
            let read = read(&mut |row| {
                rows.push(row);
                if rows.len() < PASSED {
                    return Ok(());
                }
                let full = std::mem::replace(&mut rows, Vec::with_capacity(PASSED));
                // Nobody receives once a row was refused, which is the error that counts.
                sender.send(full).map_err(|_| Error::Cancelled)
            });
            let _ = sender.send(rows);
            read
        });
        for rows in receiver {
            rows.into_iter().try_for_each(&mut each)?;
        }
        match reading.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Merges the sources of one checkpoint.
fn merge_all(
    mut sources: Vec<Source<'_>>,
    opened: &(dyn Fn(usize) + Sync),
    each: &mut Pass<'_>,
) -> Result<()> {
    sources.sort_by(|a, b| a.span.cmp(&b.span));
    // Intermediate files are removed once all is merged.
    let mut made = Vec::new();
    while n_overlapping(&sources) > MOST_OPEN {
        sources = fewer(sources, &mut made, opened)?;
    }
    merge(sources, opened, each)
}

impl<'a> Source<'a> {
    fn of(block: &'a Block, nth: usize) -> Self {
        Self {
            place: block.place.clone(),
            nth,
            span: Some(block.span.clone()),
            takes: block.takes.as_ref(),
            n_units: block.n_units,
        }
    }

    /// Whether it may have a row before or with a prompt.
    fn begins_by(&self, prompt: &str) -> bool {
        let first = self.span.as_ref().map(|(first, _)| first.as_str());
        first.is_none_or(|first| first <= prompt)
    }
}

/// Returns the largest number of sources open at once. Sources are sorted by their first prompt.
fn n_overlapping(sources: &[Source<'_>]) -> usize {
    let mut ends = BinaryHeap::new();
    let (mut most, mut n_unknown) = (0, 0);
    for source in sources {
        let Some((first, last)) = &source.span else {
            n_unknown += 1;
            continue;
        };
        while ends.peek().is_some_and(|Reverse(end)| *end < first) {
            ends.pop();
        }
        ends.push(Reverse(last));
        most = most.max(ends.len());
    }
    most + n_unknown
}

/// Merges neighbouring sources into intermediate files.
fn fewer<'a>(
    sources: Vec<Source<'a>>,
    made: &mut Vec<NamedTempFile>,
    opened: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Source<'a>>> {
    let mut fewer = Vec::new();
    let mut sources = VecDeque::from(sources);
    while !sources.is_empty() {
        let some: Vec<Source<'a>> = sources.drain(..MOST_OPEN.min(sources.len())).collect();
        let nth = some.iter().map(|source| source.nth).min();
        let spans: Option<Vec<&(String, String)>> =
            some.iter().map(|source| source.span.as_ref()).collect();
        let span = spans.and_then(|spans| {
            let first = spans.iter().map(|(first, _)| first.clone()).min()?;
            Some((first, spans.iter().map(|(_, last)| last.clone()).max()?))
        });
        let file = NamedTempFile::new()
            .map_err(|e| Error::file(std::env::temp_dir(), format!("cannot be written ({e})")))?;
        let path = file.path().to_path_buf();
        let cannot = |e| Error::file(&path, format!("cannot be written ({e})"));
        let mut writer = ParquetWriter::for_pieces(BufWriter::new(&file)).map_err(cannot)?;
        merge(some, opened, &mut |row| writer.add(&row).map_err(cannot))?;
        writer.finish(&About::default()).map_err(cannot)?;
        fewer.push(Source {
            place: RowsPlace { path, part: None },
            nth: nth.unwrap_or_default(),
            span,
            takes: None,
            n_units: 0,
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
            reader: ParquetReader::open_part(&source.place.path, source.place.part)?,
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
    opened: &(dyn Fn(usize) + Sync),
    each: &mut Pass<'_>,
) -> Result<()> {
    let mut waiting = VecDeque::from(sources);
    // The first of those that wait, already open.
    let mut ahead: VecDeque<Option<Open<'_>>> = VecDeque::new();
    let mut open: BinaryHeap<Open<'_>> = BinaryHeap::new();
    loop {
        let next = open.peek().and_then(|top| top.rows.front());
        let is_due = |source: &Source<'_>| next.is_none_or(|row| source.begins_by(&row.prompt));
        if waiting.front().is_some_and(is_due) {
            if ahead.is_empty() {
                let n = AHEAD.min(waiting.len());
                let first = waiting.make_contiguous()[..n].par_iter();
                ahead = first.map(Open::new).collect::<Result<_>>()?;
            }
            if let (Some(source), Some(next)) = (waiting.pop_front(), ahead.pop_front()) {
                opened(source.n_units);
                open.extend(next);
            }
            continue;
        }
        let Some(mut top) = open.pop() else {
            return Ok(());
        };
        // While no other source is due, take rows without going through the heap.
        let is_before_waiting = |row: &Row| {
            let source = waiting.front();
            source.is_none_or(|source| !source.begins_by(&row.prompt))
        };
        while let Some(row) = top.rows.pop_front() {
            each(row)?;
            let is_next = top.rows.front().is_some_and(|row| {
                is_before_waiting(row) && open.peek().is_none_or(|other| top > *other)
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

    /// Writes blocks of prompts, each with two layers.
    fn group(directory: &std::path::Path, chunks: &[Vec<String>]) -> Group {
        let block = |(nth, prompts): (usize, &Vec<String>)| {
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
            Block {
                place: RowsPlace { path, part: None },
                target: 0,
                span: (sorted[0].clone(), sorted[sorted.len() - 1].clone()),
                takes: None,
                n_units: 1,
            }
        };
        Group {
            blocks: chunks.iter().enumerate().map(block).collect(),
            ..Group::default()
        }
    }

    fn prompts_of(rows: impl FnOnce(&mut Pass<'_>)) -> Vec<String> {
        let mut seen = Vec::new();
        rows(&mut |row: Row| {
            seen.push(row);
            Ok(())
        });
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
        let group = group(directory.path(), &chunks);
        let tables: Vec<PathBuf> = group
            .blocks
            .iter()
            .map(|of| of.place.path.clone())
            .collect();
        let found = prompts_of(|each| {
            merged(&[group], &|_| {}, each).expect("merges");
        });
        assert_eq!(found, sorted);
        // Nothing is known of the prompts of other tables.
        assert_eq!(
            prompts_of(|each| joined(&tables, each).expect("joins")),
            sorted
        );
    }

    #[test]
    fn merging_leaves_out_prompts_that_a_later_plan_has() {
        let directory = tempfile::tempdir().expect("a directory");
        let chunk = |ids: [&str; 2]| ids.map(str::to_owned).to_vec();
        let mut group = group(directory.path(), &[chunk(["a", "b"]), chunk(["b", "c"])]);
        group.blocks[1].takes = Some(BTreeSet::from(["c".to_owned()]));
        let found = prompts_of(|each| {
            merged(&[group], &|_| {}, each).expect("merges");
        });
        assert_eq!(found, ["a", "b", "c"]);
    }

    #[test]
    fn a_row_that_is_refused_ends_the_merge() {
        let directory = tempfile::tempdir().expect("a directory");
        let ids: Vec<String> = (0..40 * PASSED).map(|id| id.to_string()).collect();
        let group = group(directory.path(), &[ids]);
        let refuse = |_: Row| Err(Error::file("table", "cannot be written"));
        let said = merged(&[group], &|_| {}, refuse).expect_err("refused");
        assert!(said.to_string().contains("cannot be written"), "{said}");
    }
}
