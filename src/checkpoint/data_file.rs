//! A weight file, read at given positions; or bytes that are compiled into a program.
//!
//! Files are read, not mapped: if another process shortens a mapped file, this one dies with SIGBUS; if it writes in place, the
//! map silently shows the new bytes. Measurements: docs/performance.md, "Reading and mapping".

use std::borrow::Cow;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use attnscope_compute::error::{Error, Result};

use super::identity::Identity;
use super::read_files;
use super::regular::{cannot_open, open_regular};
use super::writers::{Writers, writers_of};

/// Interval and number of checks for a process that has the file open for writing.
const WAIT: Duration = Duration::from_millis(5);
const MOST_WAITS: u32 = 1000;
/// Delay where the system does not say whether there is such a process.
const BLIND_WAIT: Duration = Duration::from_millis(300);

/// A file that stays open as long as its checkpoint; clones share the handle.
///
/// After every read, the file's identity is checked, so that bytes of a later save are never returned.
#[derive(Debug, Clone)]
pub struct DataFile {
    path: PathBuf,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    Open(Arc<Opened>),
    CompiledIn(&'static [u8]),
    Unpacked(Arc<[u8]>),
    /// The first bytes of a file that is not downloaded further, and the length of the whole.
    Beginning(Arc<[u8]>, usize),
}

#[derive(Debug)]
struct Opened {
    file: File,
    identity: Identity,
    /// Whether a write since then might not show in the file's times.
    may_miss_writes: AtomicBool,
    /// Reads made before that was settled: range and digest.
    early: Mutex<Vec<(Range<usize>, u64)>>,
}

impl DataFile {
    /// Opens a file without reading it.
    ///
    /// # Errors
    /// When it is not a regular file, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, "a weight file")
    }

    /// Opens a file; `expected` is what messages call it.
    ///
    /// # Errors
    /// As for [`DataFile::open`].
    pub fn open_as(path: &Path, expected: &str) -> Result<Self> {
        // Checked before opening: opening a pipe would wait for a writer.
        refuse_other_kinds(path, expected)?;
        let cannot = |e: io::Error| cannot_open(path, &e);
        let file = open_regular(path).map_err(cannot)?;
        let about = file.metadata().map_err(cannot)?;
        read_files::remember(path, &about);
        let identity = Identity::from(&about);
        let opened = Opened {
            may_miss_writes: AtomicBool::new(identity.is_fresh()),
            early: Mutex::default(),
            file,
            identity,
        };
        Ok(Self {
            path: path.to_path_buf(),
            held: Held::Open(Arc::new(opened)),
        })
    }

    /// Wraps bytes compiled into the program; `path` is only used in messages.
    pub fn compiled_in(path: &str, bytes: &'static [u8]) -> Self {
        Self {
            path: PathBuf::from(path),
            held: Held::CompiledIn(bytes),
        }
    }

    /// Wraps bytes in memory, for tests of readers.
    #[cfg(test)]
    pub(super) fn in_memory(bytes: &[u8]) -> Self {
        Self::unpacked(Path::new("memory"), bytes.to_vec())
    }

    /// Wraps bytes unpacked from the file at `path`; clones share them.
    pub(super) fn unpacked(path: &Path, bytes: Vec<u8>) -> Self {
        Self {
            path: path.to_path_buf(),
            held: Held::Unpacked(bytes.into()),
        }
    }

    /// Keeps the first `n` bytes of a file that is not downloaded further. Its length is then that of the whole, and reading
    /// beyond these bytes is an error.
    ///
    /// # Errors
    /// As for [`DataFile::read_into`].
    pub(super) fn beginning(self, n: usize, whole: usize) -> Result<Self> {
        let bytes = self.read(0..n)?.into_owned();
        Ok(Self {
            held: Held::Beginning(bytes.into(), whole),
            path: self.path,
        })
    }

    /// Returns all bytes that are in memory.
    fn in_hand(&self) -> Option<&[u8]> {
        match &self.held {
            Held::Open(_) => None,
            Held::CompiledIn(bytes) => Some(bytes),
            Held::Unpacked(bytes) | Held::Beginning(bytes, _) => Some(bytes),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both were opened on the same file in the same state.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.held, &other.held) {
            (Held::Open(a), Held::Open(b)) => a.identity == b.identity,
            _ => false,
        }
    }

    /// Size in bytes when the file was opened.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::Open(opened) => opened.identity.len(),
            Held::CompiledIn(bytes) => bytes.len(),
            Held::Unpacked(bytes) => bytes.len(),
            Held::Beginning(_, whole) => *whole,
        }
    }

    /// Returns a range without reading or copying; `None` for files on disk.
    pub fn borrowed(&self, range: Range<usize>) -> Option<&[u8]> {
        self.in_hand()?.get(range)
    }

    /// Reads a range, cut off at the end of the file.
    ///
    /// # Errors
    /// As for [`DataFile::read_into`].
    pub fn read(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        if let Some(bytes) = self.borrowed(range.clone()) {
            return Ok(Cow::Borrowed(bytes));
        }
        if matches!(self.held, Held::Beginning(..)) {
            return Err(self.ends_early());
        }
        let mut bytes = vec![0; range.len()];
        self.read_into(range.start, &mut bytes)?;
        if let Held::Open(opened) = &self.held {
            opened.remember(range, &bytes);
        }
        Ok(Cow::Owned(bytes))
    }

    /// Makes sure that any later write will be noticed, and that earlier reads still match the file.
    ///
    /// For a file that was just written, this waits some milliseconds for the clock's tick to end, and for a write in progress.
    /// Call it before reading tensor values; headers alone are not worth the wait.
    ///
    /// # Errors
    /// When the file changed, is still being written, or cannot be read.
    pub fn settle(&self) -> Result<()> {
        let Held::Open(opened) = &self.held else {
            return Ok(());
        };
        if !opened.may_miss_writes.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut early = opened.early.lock().unwrap_or_else(PoisonError::into_inner);
        if !opened.may_miss_writes.load(Ordering::Acquire) {
            return Ok(());
        }
        while let Some(rest) = opened.identity.unsettled() {
            thread::sleep(rest);
        }
        self.await_writers(opened)?;
        for (range, seen) in early.drain(..) {
            let mut bytes = vec![0; range.len()];
            self.read_into(range.start, &mut bytes)?;
            if digest(&bytes) != seen {
                return Err(Error::changed(&self.path, "it was written to"));
            }
        }
        self.unwritten(opened)?;
        opened.may_miss_writes.store(false, Ordering::Release);
        Ok(())
    }

    /// Takes the word of whoever wrote the file that it is done, so that [`DataFile::settle`] waits for nothing. A later write shows
    /// in the file's times, unless it came within the tick of the clock in which the file was done.
    pub(super) fn take_as_written(&self) {
        if let Held::Open(opened) = &self.held {
            let mut early = opened.early.lock().unwrap_or_else(PoisonError::into_inner);
            early.clear();
            opened.may_miss_writes.store(false, Ordering::Release);
        }
    }

    /// Fills a buffer from byte `start` on.
    ///
    /// # Errors
    /// When the file cannot be read, is too short, or was written to since it was opened.
    pub fn read_into(&self, start: usize, to: &mut [u8]) -> Result<()> {
        match &self.held {
            Held::Open(opened) => {
                let read = opened.file.read_exact_at(to, start as u64);
                // Checked after the read: if the file is unchanged now, it was unchanged during the read.
                self.unwritten(opened)?;
                read.map_err(|e| Error::file(&self.path, format!("cannot be read ({e})")))
            }
            Held::CompiledIn(_) | Held::Unpacked(_) | Held::Beginning(..) => {
                let from = self.borrowed(start..start.saturating_add(to.len()));
                to.copy_from_slice(from.ok_or_else(|| self.ends_early())?);
                Ok(())
            }
        }
    }

    /// The error of a read beyond the bytes in memory.
    fn ends_early(&self) -> Error {
        let problem = match self.held {
            Held::Beginning(..) => "only its header is downloaded, and its weights are needed",
            _ => "ends early",
        };
        Error::file(&self.path, problem)
    }

    /// Tells the system that bytes will be read soon. It may begin to read them, or not.
    pub(super) fn will_read(&self, bytes: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Held::Open(opened) = &self.held {
            use rustix::fs::{Advice, fadvise};
            let n = std::num::NonZeroU64::new(bytes.len() as u64);
            if let Err(e) = fadvise(&opened.file, bytes.start as u64, n, Advice::WillNeed) {
                log::debug!("{}: {e}", self.path.display());
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }

    /// Waits until no process has the file open for writing.
    fn await_writers(&self, opened: &Opened) -> Result<()> {
        for _ in 0..MOST_WAITS {
            match writers_of(&opened.file) {
                Writers::None => return Ok(()),
                Writers::Some => {
                    thread::sleep(WAIT);
                    self.unwritten(opened)?;
                }
                Writers::Unknown => {
                    // Unknown: a write in progress should finish within a moment.
                    thread::sleep(BLIND_WAIT);
                    return Ok(());
                }
            }
        }
        // The process does not write: it would have changed the file's times within these seconds.
        Ok(())
    }

    /// Opens a stream from the beginning of the file.
    ///
    /// # Errors
    /// As for [`DataFile::settle`].
    pub fn reader(&self) -> Result<Reader> {
        self.settle()?;
        Ok(Reader {
            file: self.clone(),
            at: 0,
        })
    }

    /// Checks that the path still leads to the opened file and that it was not written to since.
    ///
    /// A removed file can still be read completely through its handle, so removal is not a change.
    ///
    /// # Errors
    /// [`Error::Changed`] says what has changed.
    pub fn unchanged(&self) -> Result<()> {
        let Held::Open(opened) = &self.held else {
            return Ok(());
        };
        self.unwritten(opened)?;
        match self.path.metadata() {
            Ok(now) if !opened.identity.is_of(&now) => {
                Err(Error::changed(&self.path, "another file took its place"))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn unwritten(&self, opened: &Opened) -> Result<()> {
        let now = Identity::of(&opened.file)
            .map_err(|e| Error::file(&self.path, format!("cannot be looked at ({e})")))?;
        match opened.identity.difference(&now) {
            Some(what) => Err(Error::changed(&self.path, what)),
            None => Ok(()),
        }
    }
}

impl Opened {
    fn remember(&self, range: Range<usize>, bytes: &[u8]) {
        if self.may_miss_writes.load(Ordering::Acquire) {
            let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
            early.push((range, digest(bytes)));
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Refuses anything but a regular file, without opening it.
///
/// # Errors
/// When the path is a directory, a pipe or a device. A missing file is not an error here: opening it will fail.
fn refuse_other_kinds(path: &Path, expected: &str) -> Result<()> {
    let Ok(about) = path.metadata() else {
        return Ok(());
    };
    if about.is_file() {
        return Ok(());
    }
    let found = if about.is_dir() {
        "a directory"
    } else {
        "a pipe or a device"
    };
    Err(Error::file(
        path,
        format!("expected {expected}, found {found}"),
    ))
}

/// A stream over a file.
#[derive(Debug, Clone)]
pub struct Reader {
    file: DataFile,
    at: usize,
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = to.len().min(self.file.len().saturating_sub(self.at));
        let read = self.file.read_into(self.at, &mut to[..n]);
        read.map_err(io::Error::other)?;
        self.at += n;
        Ok(n)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => i128::from(at),
            SeekFrom::End(by) => self.file.len() as i128 + i128::from(by),
            SeekFrom::Current(by) => self.at as i128 + i128::from(by),
        };
        self.at = usize::try_from(at)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a seek before the start"))?;
        Ok(self.at as u64)
    }
}

/// Reads the first bytes of a file; empty if it cannot be read.
pub(super) fn beginning(path: &Path, n: usize) -> Vec<u8> {
    let read = || {
        let file = DataFile::open(path).ok()?;
        let bytes = file.read(0..n.min(file.len())).ok()?;
        Some(bytes.into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn on_disk(bytes: &[u8]) -> (tempfile::TempDir, DataFile) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("weights");
        fs::write(&path, bytes).expect("writes");
        let file = DataFile::open(&path).expect("opens");
        file.settle().expect("settles");
        (directory, file)
    }

    fn says(result: Result<()>, words: &str) {
        match result.expect_err("changed") {
            Error::Changed { what, .. } => assert!(what.contains(words), "{what}"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn reads_return_the_requested_range_cut_off_at_the_end() {
        let (_directory, file) = on_disk(b"0123456789");
        assert_eq!(file.read(2..5).expect("reads").as_ref(), b"234");
        assert_eq!(file.read(8..50).expect("reads").as_ref(), b"89");
        assert!(file.read(50..60).expect("reads").is_empty());
        let mut all = String::new();
        let mut reader = file.reader().expect("settles");
        reader.seek(SeekFrom::End(-3)).expect("seeks");
        reader.read_to_string(&mut all).expect("reads");
        assert_eq!(all, "789");
        assert!(reader.seek(SeekFrom::Current(-50)).is_err());
    }

    #[test]
    fn reading_a_shortened_file_is_an_error_and_no_signal() {
        let (_directory, file) = on_disk(&[7; 100_000]);
        let writer = fs::OpenOptions::new().write(true).open(file.path());
        writer.expect("opens").set_len(10).expect("shortens");
        says(file.read(0..100_000).map(drop), "100000 to 10 bytes");
        says(file.unchanged(), "100000 to 10 bytes");
    }

    #[test]
    fn bytes_written_in_place_are_noticed_even_if_the_time_is_reset() {
        let (_directory, file) = on_disk(b"the first save");
        let before = file.path().metadata().expect("a file");
        let writer = fs::OpenOptions::new().write(true).open(file.path());
        let writer = writer.expect("opens");
        writer.write_all_at(b"THE", 0).expect("writes");
        let modified = before.modified().expect("a time");
        writer.set_modified(modified).expect("puts it back");
        says(file.read(0..3).map(drop), "written to");
    }

    #[test]
    fn a_second_write_within_one_tick_of_the_clock_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        for n in 0..50 {
            let path = directory.path().join(n.to_string());
            fs::write(&path, b"the first save").expect("writes");
            let file = DataFile::open(&path).expect("opens");
            assert_eq!(file.read(4..9).expect("reads").as_ref(), b"first");
            let writer = fs::OpenOptions::new().write(true).open(&path);
            writer
                .expect("opens")
                .write_all_at(b"other", 4)
                .expect("writes");
            // Depending on the file system, the times may not show the write.
            says(file.settle(), "written to");
        }
    }

    #[test]
    fn a_replaced_file_is_noticed_and_a_removed_one_is_still_read() {
        let (directory, file) = on_disk(b"the first save");
        let other = directory.path().join("other");
        fs::write(&other, b"another save").expect("writes");
        fs::remove_file(file.path()).expect("removes");
        file.unchanged().expect("still there");
        assert_eq!(file.read(4..9).expect("reads").as_ref(), b"first");
        fs::rename(&other, file.path()).expect("renames");
        says(file.unchanged(), "another file");
        assert_eq!(file.read(4..9).expect("reads").as_ref(), b"first");
    }

    #[test]
    fn new_links_and_permissions_are_no_change_of_content() {
        let (directory, file) = on_disk(b"the first save");
        fs::hard_link(file.path(), directory.path().join("latest")).expect("links");
        file.unchanged().expect("linked only");
        let mut rights = file.path().metadata().expect("a file").permissions();
        rights.set_readonly(true);
        fs::set_permissions(file.path(), rights).expect("sets");
        file.unchanged().expect("its rights only");
    }
}
