//! Writes the units that a worker finishes, one by one or in blocks.

use std::path::PathBuf;
use std::time::Instant;

use attnscope_compute::error::{Error, Result};
use attnscope_report::UnitRecord;
use attnscope_report::record::Table;

use super::digest;
use super::pack::Pack;
use super::parts::{Layout, Parts};

/// Units of a block at most.
const MOST_UNITS: usize = 1_000;
/// Rows of a block at most: with all statistics, some 20 MiB in memory.
const MOST_ROWS: usize = 1 << 14;

/// Writes the units of one checkpoint that this process finishes. What was not written when it is dropped is lost.
#[derive(Debug)]
pub struct UnitWriter<'a> {
    parts: &'a Parts,
    packs: PathBuf,
    pack: Option<Pack>,
    /// Units that are not written yet, and their rows.
    records: Vec<UnitRecord>,
    table: Option<Table>,
    since: Instant,
}

impl<'a> UnitWriter<'a> {
    /// Begins to write, without a file yet. `packs` is the directory of the checkpoint's packed parts.
    pub(super) fn of(parts: &'a Parts, packs: PathBuf) -> Self {
        Self {
            parts,
            packs,
            pack: None,
            records: Vec::new(),
            table: None,
            since: Instant::now(),
        }
    }

    /// Adds a unit with its rows, if it has any, and writes the block if it is large or old enough.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn add(&mut self, mut record: UnitRecord, rows: Option<Table>) -> Result<()> {
        if self.records.is_empty() {
            self.since = Instant::now();
        }
        // Until the block is written, which digest it is remains open.
        record.digest = rows.as_ref().map(|_| String::new());
        self.records.push(record);
        match (&mut self.table, rows) {
            (Some(table), Some(rows)) => table.rows.extend(rows.rows),
            (None, rows) => self.table = rows,
            (Some(_), None) => {}
        }
        let n_rows = self.table.as_ref().map_or(0, |table| table.rows.len());
        let is_due = match self.parts.layout {
            Layout::Files | Layout::Directories => true,
            Layout::Packed(slice) => {
                let is_full = n_rows >= MOST_ROWS || self.records.len() >= MOST_UNITS;
                is_full || self.since.elapsed() >= slice
            }
        };
        if is_due { self.flush() } else { Ok(()) }
    }

    /// Writes the units that are not written yet.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn flush(&mut self) -> Result<()> {
        let mut records = std::mem::take(&mut self.records);
        if records.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        if let Some(mut table) = self.table.take() {
            table.sort();
            let cannot = |e| Error::file(&self.packs, format!("rows that cannot be written ({e})"));
            table.write_part(&mut rows).map_err(cannot)?;
        }
        let digest = digest::of_bytes(&rows);
        for record in &mut records {
            record.digest = record.digest.is_some().then(|| digest.clone());
        }
        if !matches!(self.parts.layout, Layout::Packed(_)) {
            let mut records = records.into_iter();
            return records.try_for_each(|record| self.parts.write_own(record, &rows));
        }
        let pack = match &mut self.pack {
            Some(pack) => pack,
            none => none.insert(Pack::create(&self.packs)?),
        };
        pack.append(&records, &rows)
    }
}
