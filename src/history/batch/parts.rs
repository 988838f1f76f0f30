//! Files of units: rows and record, each written completely or not at all.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use attnscope_checkpoint::{CONFIGURATION, read_regular};
use attnscope_compute::error::{Error, Result};
use attnscope_report::UnitRecord;
use attnscope_system::signals::{Owner, Temporary, is_live, owner_of, undisturbed};

use super::digest;

/// Directory of units, below the batch directory.
const PARTS: &str = "parts";
/// Directory of plans, next to it.
pub(super) const PLANS: &str = "plans";
/// Directory of weight digests, next to it.
pub(super) const WEIGHTS: &str = "weights";
/// Age at which temporary files are removed if it is unknown whether their worker still runs.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// The finished units of a batch.
#[derive(Debug, Clone)]
pub struct Parts {
    directory: PathBuf,
}

/// State of a unit's files.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// No files, or files that do not belong together.
    Missing,
    Done(UnitRecord),
    Failed(UnitRecord),
}

impl Parts {
    /// Opens the units of a batch directory, which is created if it is missing.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn open(batch: &Path) -> Result<Self> {
        let directory = batch.join(PARTS);
        let cannot = |e: io::Error| Error::file(&directory, format!("cannot be written ({e})"));
        fs::create_dir_all(&directory).map_err(cannot)?;
        // Fail now if the directory is not writable.
        drop(Temporary::new_in(&directory).map_err(|e| cannot(e.kind().into()))?);
        for directory in [&directory, &batch.join(PLANS), &batch.join(WEIGHTS)] {
            remove_left_behind(directory);
        }
        Ok(Self { directory })
    }

    /// Opens the units of a batch directory for reading only.
    pub fn of(batch: &Path) -> Self {
        Self {
            directory: batch.join(PARTS),
        }
    }

    /// Returns the path of a unit's rows.
    pub fn rows(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.parquet"))
    }

    fn record(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// Returns the state of a unit. Rows that do not match the record count as missing.
    pub fn state(&self, id: &str) -> State {
        let Some(record) = read(&self.record(id)).filter(|record| record.id == id) else {
            return State::Missing;
        };
        if !self.has_rows_of(&record) {
            return State::Missing;
        }
        if record.is_done() {
            State::Done(record)
        } else {
            State::Failed(record)
        }
    }

    /// Whether the rows of a record exist unchanged.
    pub fn has_rows_of(&self, record: &UnitRecord) -> bool {
        let is_theirs = |expected: &String| {
            let found = digest::of_file(&self.rows(&record.id));
            found.is_ok_and(|found| found == *expected)
        };
        record.digest.as_ref().is_none_or(is_theirs)
    }

    /// Returns the records of all finished units in the order of their ids, and the names of damaged files.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn records(&self) -> Result<(Vec<UnitRecord>, Vec<String>)> {
        let entries = fs::read_dir(&self.directory).map_err(|e| {
            let problem = format!("expected the units of a batch, cannot be listed ({e})");
            Error::file(&self.directory, problem)
        })?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.sort();
        let (mut records, mut damaged) = (Vec::new(), Vec::new());
        for path in paths {
            match read(&path) {
                Some(record) if path.file_stem() == Some(OsStr::new(&record.id)) => {
                    records.push(record);
                }
                _ => damaged.push(base_name(&path)),
            }
        }
        Ok((records, damaged))
    }

    /// Writes a unit: its rows, if it has any, then its record. Another worker may write the same unit at the same time.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn write(&self, mut record: UnitRecord, rows: Option<&[u8]>) -> Result<()> {
        record.digest = rows.map(digest::of_bytes);
        let of_rows = self.rows(&record.id);
        let wrote_rows = rows.map(|rows| self.temporary(rows)).transpose()?;
        let wrote_record = self.temporary_record(&record)?;
        undisturbed(|| {
            if let Some(rows) = wrote_rows {
                persist(rows, &of_rows)?;
            }
            persist(wrote_record, &self.record(&record.id))
        })?;
        // Two different machines may each have left one of the files: the later record is adjusted to the rows.
        if record.digest.is_some() {
            let found = digest::of_file(&of_rows).ok();
            if found.is_some() && found != record.digest {
                record.digest = found;
                persist(self.temporary_record(&record)?, &self.record(&record.id))?;
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

    fn temporary(&self, content: &[u8]) -> Result<Temporary> {
        temporary(&self.directory, content)
    }
}

fn read(path: &Path) -> Option<UnitRecord> {
    serde_json::from_slice(&read_regular(path, CONFIGURATION).ok()?).ok()
}

fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Writes a small file completely or not at all, and creates its directory.
///
/// # Errors
/// When it cannot be written.
pub(super) fn put(directory: &Path, name: &str, content: &[u8]) -> Result<()> {
    let target = directory.join(name);
    fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be written ({e})")))?;
    persist(temporary(directory, content)?, &target)
}

/// Writes content to a temporary file and flushes it to disk.
fn temporary(directory: &Path, content: &[u8]) -> Result<Temporary> {
    let write = || {
        let mut temporary = Temporary::new_in(directory)?;
        temporary.as_file_mut().write_all(content)?;
        temporary.as_file().sync_data()?;
        Ok(temporary)
    };
    write().map_err(|e: io::Error| Error::file(directory, format!("cannot be written ({e})")))
}

fn persist(temporary: Temporary, target: &Path) -> Result<()> {
    let kept = temporary.persist(target, true);
    kept.map_err(|e| Error::file(target, format!("cannot be written ({e})")))
}

/// Removes temporary files of workers that are gone: processes on this machine that have ended, and old files whose process
/// cannot be checked from here. Files being written on another machine are not old yet.
fn remove_left_behind(directory: &Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(".tmp") || is_live(&entry.path()) {
            continue;
        }
        let written = entry.metadata().and_then(|about| about.modified());
        let is_old = || {
            written.is_ok_and(|written| {
                now.duration_since(written)
                    .is_ok_and(|age| age > LEFT_BEHIND)
            })
        };
        let is_left_behind = match owner_of(&name) {
            Owner::Ended => true,
            Owner::Alive | Owner::Unknown => is_old(),
        };
        if is_left_behind {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_system::signals::{knows_owners, prefix_of};

    fn record(id: &str, error: Option<&str>) -> UnitRecord {
        let prompts = vec!["p".to_owned()];
        UnitRecord::ended(
            id.to_owned(),
            "step-1".to_owned(),
            prompts,
            error.map(str::to_owned),
        )
    }

    #[test]
    fn a_unit_is_done_once_both_files_exist_and_belong_together() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = Parts::open(batch.path()).expect("opens");
        assert_eq!(parts.state("a"), State::Missing);
        parts
            .write(record("a", None), Some(b"rows"))
            .expect("writes");
        assert!(matches!(parts.state("a"), State::Done(_)));
        parts.write(record("b", Some("why")), None).expect("writes");
        assert!(
            matches!(parts.state("b"), State::Failed(record) if record.error.as_deref() == Some("why"))
        );
        fs::write(parts.rows("a"), "other rows").expect("writes");
        assert_eq!(parts.state("a"), State::Missing);
        fs::remove_file(parts.rows("a")).expect("removes");
        assert_eq!(parts.state("a"), State::Missing);
        let n_files = fs::read_dir(batch.path().join(PARTS))
            .expect("lists")
            .count();
        assert_eq!(n_files, 2, "a temporary file was left behind");
    }

    #[test]
    fn files_that_are_not_records_are_named() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = Parts::open(batch.path()).expect("opens");
        parts
            .write(record("a", None), Some(b"rows"))
            .expect("writes");
        fs::write(batch.path().join(PARTS).join("b.json"), "{").expect("writes");
        fs::copy(parts.record("a"), parts.record("c")).expect("copies");
        let (records, damaged) = parts.records().expect("lists");
        assert_eq!(records.len(), 1);
        assert_eq!(damaged, ["b.json", "c.json"]);
    }

    #[test]
    fn temporary_files_of_killed_workers_are_removed_and_those_of_live_ones_kept() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = batch.path().join(PARTS);
        let directories = [
            &parts,
            &batch.path().join(PLANS),
            &batch.path().join(WEIGHTS),
        ];
        let day = LEFT_BEHIND + Duration::from_secs(60);
        let old = SystemTime::now() - day;
        // A process of this machine that has ended. Where processes cannot be checked, its files stay until they are old.
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        child.wait().expect("ends");
        let ended = format!("{}a", prefix_of(child.id()));
        let mut alive = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("starts");
        let of_here = format!("{}b", prefix_of(alive.id()));
        let elsewhere = ".tmp-0123456789abcdef-17-c".to_owned();
        for directory in directories {
            fs::create_dir_all(directory).expect("made");
            for (name, is_old) in [
                (ended.as_str(), false),
                (&of_here, false),
                (&elsewhere, false),
                (".tmpAbCdEf", false),
                (".tmp-0123456789abcdef-17-d", true),
                (".tmpGhIjKl", true),
                ("unit.json", true),
            ] {
                let file = fs::File::create(directory.join(name)).expect("made");
                if is_old {
                    file.set_modified(old).expect("dated");
                }
            }
        }
        let kept = Temporary::new_in(&parts).expect("opens");
        Parts::open(batch.path()).expect("opens");
        for directory in directories {
            let entries = fs::read_dir(directory).expect("lists").flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let mut names: Vec<String> = names.collect();
            names.sort();
            let own = names
                .iter()
                .position(|name| kept.path().file_name() == Some(OsStr::new(name)));
            assert_eq!(own.is_some(), *directory == parts);
            if let Some(own) = own {
                names.remove(own);
            }
            let mut expected = vec![of_here.as_str(), &elsewhere, ".tmpAbCdEf", "unit.json"];
            if !knows_owners() {
                expected.push(&ended);
            }
            expected.sort_unstable();
            assert_eq!(names, expected, "{}", directory.display());
        }
        alive.kill().expect("ends");
        alive.wait().expect("ends");
    }
}
