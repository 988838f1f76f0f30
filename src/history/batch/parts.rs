//! Finished units on disk: rows and records, each unit completely there or not at all.
//!
//! Units lie in one of three layouts, and in any mixture of them: a record and a file of rows for each unit, the same in
//! directories by the first letters of the ids, or packed ([`super::pack`]). A record and a file of rows are a block of one unit.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use attnscope_checkpoint::{CONFIGURATION, read_regular};
use attnscope_compute::error::{Error, Result};
use attnscope_report::UnitRecord;
use attnscope_system::signals::{Temporary, undisturbed};

use super::digest;
use super::pack;
use super::unit_writer::UnitWriter;
use super::whole_files::{persist, remove_left_behind, temporary};

/// Directory of units, below the batch directory.
const PARTS: &str = "parts";
/// Directory of plans, next to it.
pub(super) const PLANS: &str = "plans";
/// Directory of weight digests, next to it.
pub(super) const WEIGHTS: &str = "weights";
/// Letters of an id that name its directory.
const N_PREFIX: usize = 2;
/// Letters in the name of a checkpoint's directory of packed parts.
const N_KEY: usize = 32;

/// How units are written. All layouts are read, whatever is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `parts/ID.parquet` and `parts/ID.json`.
    Files,
    /// `parts/AB/ID.parquet` and `parts/AB/ID.json`, where ids begin with AB.
    Directories,
    /// `parts/CHECKPOINT/PROCESS.units`, each with the units of one checkpoint that one process finished. A block is written as
    /// soon as this time has passed since the first of its units ended.
    Packed(Duration),
}

/// The finished units of a batch.
#[derive(Debug, Clone)]
pub struct Parts {
    directory: PathBuf,
    pub(super) layout: Layout,
}

/// State of a unit.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// No files, or files that do not belong together.
    Missing,
    Done(UnitRecord),
    Failed(UnitRecord),
}

/// The record of a unit with files of its own, and where its rows are; the name of a damaged record otherwise.
pub(super) type OwnUnit = std::result::Result<(UnitRecord, RowsPlace), String>;

/// A place of rows: a whole file, or a part of a file as its offset and length in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsPlace {
    pub path: PathBuf,
    pub part: Option<(u64, u64)>,
}

impl RowsPlace {
    /// Whether the rows are those of a digest.
    pub(super) fn has(&self, expected: &str) -> bool {
        let found = match self.part {
            None => digest::of_file(&self.path),
            Some(part) => digest::of_file_part(&self.path, part),
        };
        found.is_ok_and(|found| found == *expected)
    }
}

impl Parts {
    /// Opens the units of a batch directory, which is created if it is missing.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn open(batch: &Path, layout: Layout) -> Result<Self> {
        let directory = batch.join(PARTS);
        let cannot = |e: io::Error| Error::file(&directory, format!("cannot be written ({e})"));
        fs::create_dir_all(&directory).map_err(cannot)?;
        // Fail now if the directory is not writable.
        drop(Temporary::new_in(&directory).map_err(|e| cannot(e.kind().into()))?);
        for directory in [&directory, &batch.join(PLANS), &batch.join(WEIGHTS)] {
            remove_left_behind(directory);
        }
        Ok(Self { directory, layout })
    }

    /// Opens the units of a batch directory for reading only.
    pub fn of(batch: &Path) -> Self {
        Self {
            directory: batch.join(PARTS),
            layout: Layout::Files,
        }
    }

    /// Returns the places of a unit's own record and rows, in the layouts of one file a unit.
    pub(super) fn own_files(&self, id: &str, layout: Layout) -> (PathBuf, PathBuf) {
        let directory = match (layout, id.get(..N_PREFIX)) {
            (Layout::Directories, Some(prefix)) => self.directory.join(prefix),
            _ => self.directory.clone(),
        };
        let file = |ending: &str| directory.join(format!("{id}.{ending}"));
        (file("json"), file("parquet"))
    }

    /// Returns the directory of a checkpoint's packed parts.
    fn packs(&self, checkpoint: &str) -> PathBuf {
        self.directory.join(key_of(checkpoint))
    }

    /// Finds the units of a planned checkpoint. Only its own packed parts are read.
    pub fn of_checkpoint(&self, checkpoint: &str) -> Known<'_> {
        let mut packed = BTreeMap::new();
        for path in packs_in(&self.packs(checkpoint)) {
            let Ok((blocks, _)) = pack::read(&path) else {
                continue;
            };
            for block in blocks {
                let place = RowsPlace {
                    path: path.clone(),
                    part: Some(block.rows),
                };
                let digest = block
                    .records
                    .iter()
                    .find_map(|record| record.digest.as_ref());
                if digest.is_none_or(|digest| place.has(digest)) {
                    for record in block.records {
                        // A unit that was done stays done, and of several failures the last counts.
                        let is_done = packed.get(&record.id).is_some_and(UnitRecord::is_done);
                        if !is_done {
                            packed.insert(record.id.clone(), record);
                        }
                    }
                }
            }
        }
        Known {
            parts: self,
            packed,
        }
    }

    /// Begins to write units of a planned checkpoint.
    pub fn writer(&self, checkpoint: &str) -> UnitWriter<'_> {
        UnitWriter::of(self, self.packs(checkpoint))
    }

    /// Writes a unit of its own: its rows, if it has any, then its record. Another worker may write the same unit at the same time.
    pub(super) fn write_own(&self, mut record: UnitRecord, rows: &[u8]) -> Result<()> {
        let (of_record, of_rows) = self.own_files(&record.id, self.layout);
        if let Some(directory) = of_record.parent() {
            fs::create_dir_all(directory)
                .map_err(|e| Error::file(directory, format!("cannot be written ({e})")))?;
        }
        let wrote_rows = record.digest.is_some().then(|| self.temporary(rows));
        let wrote_rows = wrote_rows.transpose()?;
        let wrote_record = self.temporary_record(&record)?;
        undisturbed(|| {
            if let Some(rows) = wrote_rows {
                persist(rows, &of_rows)?;
            }
            persist(wrote_record, &of_record)
        })?;
        // Two different machines may each have left one of the files: the later record is adjusted to the rows.
        if record.digest.is_some() {
            let found = digest::of_file(&of_rows).ok();
            if found.is_some() && found != record.digest {
                record.digest = found;
                persist(self.temporary_record(&record)?, &of_record)?;
            }
        }
        Ok(())
    }

    fn temporary_record(&self, record: &UnitRecord) -> Result<Temporary> {
        let mut content = serde_json::to_vec_pretty(record).map_err(|e| {
            Error::file(
                &self.directory,
                format!("a record that cannot be written ({e})"),
            )
        })?;
        content.push(b'\n');
        self.temporary(&content)
    }

    /// Temporary files all lie in one directory, so that those of killed workers are found without listing the others.
    fn temporary(&self, content: &[u8]) -> Result<Temporary> {
        temporary(&self.directory, content)
    }

    /// Lists what there is, without reading any of it.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub(super) fn contents(&self) -> Result<Contents> {
        let mut contents = Contents::default();
        let cannot = |e: io::Error| {
            let problem = format!("expected the units of a batch, cannot be listed ({e})");
            Error::file(&self.directory, problem)
        };
        for entry in fs::read_dir(&self.directory).map_err(cannot)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_directory = || entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(id) = name.strip_suffix(".json") {
                contents.own.push((id.into(), Layout::Files));
            } else if [N_PREFIX, N_KEY].contains(&name.len()) && is_directory() {
                if name.len() == N_KEY {
                    contents.keys.push(name);
                    continue;
                }
                let inside = fs::read_dir(entry.path()).into_iter().flatten().flatten();
                for entry in inside {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if let Some(id) = name.strip_suffix(".json") {
                        contents.own.push((id.into(), Layout::Directories));
                    }
                }
            }
        }
        contents.own.sort_by(|a, b| a.0.cmp(&b.0));
        contents.keys.sort();
        Ok(contents)
    }

    /// Reads a unit's own record, and says where its rows are; the name of a damaged record otherwise.
    pub(super) fn own(&self, id: &str, layout: Layout) -> OwnUnit {
        let (record, path) = self.own_files(id, layout);
        let place = RowsPlace { path, part: None };
        let read = read(&record).filter(|record| record.id == id);
        let read = read.map(|record| (record, place));
        read.ok_or_else(|| self.name_of(&record))
    }

    /// Returns the packed parts of a checkpoint's key, the oldest first.
    pub(super) fn packs_of_key(&self, key: &str) -> Vec<PathBuf> {
        packs_in(&self.directory.join(key))
    }

    /// Returns when units were last added, as far as the times of files and directories tell.
    pub(super) fn last_change(&self) -> Option<SystemTime> {
        let contents = self.contents().unwrap_or_default();
        let mut places: Vec<PathBuf> = contents
            .keys
            .iter()
            .flat_map(|key| self.packs_of_key(key))
            .collect();
        let own = contents.own.iter();
        let directories = own.filter_map(|(id, layout)| {
            let (record, _) = self.own_files(id, *layout);
            record.parent().map(Path::to_path_buf)
        });
        places.extend(directories.collect::<BTreeSet<PathBuf>>());
        let times = places
            .iter()
            .map(|place| place.metadata().and_then(|of| of.modified()));
        times.filter_map(io::Result::ok).max()
    }

    /// Returns the name of a file as messages have it: below the directory of the batch.
    pub(super) fn name_of(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.directory).unwrap_or(path);
        format!("{PARTS}/{}", below.display())
    }
}

/// What a directory of units contains.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Ids of units with files of their own, in order; an id may be there in both layouts.
    pub own: Vec<(Box<str>, Layout)>,
    /// Names of the directories of packed parts.
    pub keys: Vec<String>,
}

/// Returns the name of the directory of a checkpoint's packed parts.
pub(super) fn key_of(checkpoint: &str) -> String {
    let mut key = digest::of_bytes(checkpoint.as_bytes());
    key.truncate(N_KEY);
    key
}

fn packs_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_pack = |path: &PathBuf| path.extension() == Some(OsStr::new(pack::ENDING));
    let mut paths: Vec<PathBuf> = paths.filter(is_pack).collect();
    paths.sort();
    paths
}

/// The finished units of one checkpoint.
#[derive(Debug)]
pub struct Known<'a> {
    parts: &'a Parts,
    packed: BTreeMap<String, UnitRecord>,
}

impl Known<'_> {
    /// Returns the state of a unit. Rows that do not match the record count as missing.
    pub fn state(&self, id: &str) -> State {
        let own = [Layout::Files, Layout::Directories].map(|layout| self.parts.own(id, layout));
        let own = own.into_iter().flatten().filter(|(record, place)| {
            let digest = record.digest.as_ref();
            digest.is_none_or(|digest| place.has(digest))
        });
        let own = own.map(|(record, _)| record);
        let mut found: Vec<UnitRecord> = own.chain(self.packed.get(id).cloned()).collect();
        match found.iter().position(UnitRecord::is_done) {
            Some(at) => State::Done(found.swap_remove(at)),
            None => found.pop().map_or(State::Missing, State::Failed),
        }
    }
}

fn read(path: &Path) -> Option<UnitRecord> {
    serde_json::from_slice(&read_regular(path, CONFIGURATION).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Listing, Shard};
    use super::*;
    use attnscope_checks::stats::STATISTICS;
    use attnscope_report::record::{Row, Table};

    fn record(id: &str, error: Option<&str>) -> UnitRecord {
        let prompts = vec!["p".to_owned()];
        UnitRecord::ended(
            id.to_owned(),
            "step-1".to_owned(),
            prompts,
            error.map(str::to_owned),
        )
    }

    fn rows(prompt: &str) -> Table {
        let row = Row {
            checkpoint: "step-1".to_owned(),
            step: Some(1),
            prompt: prompt.to_owned(),
            n_tokens: 3,
            loss: None,
            stack: None,
            layer: 0,
            head: None,
            stats: vec![None; STATISTICS.len()],
        };
        Table {
            rows: vec![row],
            ..Table::default()
        }
    }

    fn write(parts: &Parts, record: UnitRecord, rows: Option<Table>) {
        let mut writer = parts.writer("step-1");
        writer.add(record, rows).expect("writes");
        writer.flush().expect("writes");
    }

    fn state(parts: &Parts, id: &str) -> State {
        parts.of_checkpoint("step-1").state(id)
    }

    const PACKED: Layout = Layout::Packed(Duration::from_secs(60));

    #[test]
    fn a_unit_is_done_once_both_files_exist_and_belong_together() {
        for layout in [Layout::Files, Layout::Directories] {
            let batch = tempfile::tempdir().expect("a directory");
            let parts = Parts::open(batch.path(), layout).expect("opens");
            assert_eq!(state(&parts, "aaa"), State::Missing);
            write(&parts, record("aaa", None), Some(rows("p")));
            assert!(matches!(state(&parts, "aaa"), State::Done(_)));
            write(&parts, record("bbb", Some("why")), None);
            assert!(
                matches!(state(&parts, "bbb"), State::Failed(record) if record.error.as_deref() == Some("why"))
            );
            let (_, of_rows) = parts.own_files("aaa", layout);
            fs::write(&of_rows, "other rows").expect("writes");
            assert_eq!(state(&parts, "aaa"), State::Missing);
            fs::remove_file(&of_rows).expect("removes");
            assert_eq!(state(&parts, "aaa"), State::Missing);
            let n_files = |directory: &Path| fs::read_dir(directory).expect("lists").count();
            let n = n_files(&parts.directory);
            assert_eq!(n, 2, "a temporary file was left behind, or a directory");
        }
    }

    #[test]
    fn packed_units_are_found_in_every_layout_and_done_rather_than_failed() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = Parts::open(batch.path(), PACKED).expect("opens");
        write(&parts, record("aaa", Some("why")), None);
        assert!(matches!(state(&parts, "aaa"), State::Failed(_)));
        write(&parts, record("aaa", None), Some(rows("p")));
        write(&parts, record("aaa", Some("again")), None);
        let files = Parts::open(batch.path(), Layout::Files).expect("opens");
        assert!(matches!(state(&files, "aaa"), State::Done(_)));
        assert_eq!(files.of_checkpoint("step-2").state("aaa"), State::Missing);
        write(&files, record("bbb", None), Some(rows("p")));
        assert!(matches!(state(&parts, "bbb"), State::Done(_)));
        // Of the three processes that wrote, each has its own file.
        let packs = parts.packs_of_key(&key_of("step-1"));
        assert_eq!(packs.len(), 3);
        let measured = parts.measured().expect("units");
        assert_eq!(measured.n_units, 4);
        let n_bytes: u64 = packs
            .iter()
            .map(|pack| pack.metadata().expect("a file").len())
            .sum();
        assert!(measured.bytes > n_bytes);
    }

    #[test]
    fn a_block_has_its_units_until_the_slice_of_time_is_over() {
        let batch = tempfile::tempdir().expect("a directory");
        for (slice, n_blocks) in [(Duration::from_secs(60), 1), (Duration::ZERO, 3)] {
            let parts = Parts::open(batch.path(), Layout::Packed(slice)).expect("opens");
            let mut writer = parts.writer("step-1");
            for id in ["c", "a", "b"] {
                writer
                    .add(record(id, None), Some(rows(id)))
                    .expect("writes");
            }
            writer.flush().expect("writes");
            writer.flush().expect("nothing is left");
            let path = parts.packs_of_key(&key_of("step-1")).pop().expect("a file");
            let (blocks, damaged) = pack::read(&path).expect("reads");
            assert_eq!((blocks.len(), damaged.len()), (n_blocks, 0));
            let mut reader =
                attnscope_report::record::ParquetReader::open_part(&path, Some(blocks[0].rows))
                    .expect("opens");
            let rows = reader.next_rows().expect("reads").expect("rows");
            let prompts: Vec<&str> = rows.iter().map(|row| row.prompt.as_str()).collect();
            assert_eq!(
                prompts,
                if n_blocks == 1 {
                    vec!["a", "b", "c"]
                } else {
                    vec!["c"]
                }
            );
        }
    }

    #[test]
    fn files_that_are_not_records_are_named() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = Parts::open(batch.path(), Layout::Files).expect("opens");
        write(&parts, record("a", None), Some(rows("p")));
        fs::write(batch.path().join(PARTS).join("b.json"), "{").expect("writes");
        let (of_a, _) = parts.own_files("a", Layout::Files);
        fs::copy(&of_a, of_a.with_file_name("c.json")).expect("copies");
        let listing = Listing::of(batch.path(), Shard::WHOLE, &|_, _| {}).expect("lists");
        assert_eq!(listing.n_units(), 1);
        assert_eq!(listing.damaged, ["parts/b.json", "parts/c.json"]);
    }
}
