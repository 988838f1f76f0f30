//! Packed parts: a file to which one process appends the finished units of one checkpoint, block by block.
//!
//! A block is a line of ASCII text (the head), the records of its units as a JSON array, and the rows of all of them as one
//! Parquet file:
//!
//! ```text
//! attnscope-units 1 RECORDS ROWS DIGEST\n
//! ```
//!
//! RECORDS and ROWS are lengths in bytes, of 16 digits each. DIGEST is the SHA-256 of the text `RECORDS ROWS ` followed by the
//! records. Each record has the SHA-256 of the rows. So heads are the index of a file: a reader goes from head to head and
//! skips the rows. A block that was not written to its end counts as absent, and the units of a damaged one as not done.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use attnscope_checkpoint::open_regular;
use attnscope_compute::error::{Error, Result};
use attnscope_report::UnitRecord;
use attnscope_system::signals::{prefix_of, undisturbed};

use super::digest;

/// Ending of packed parts.
pub(super) const ENDING: &str = "units";
/// Beginning of a head.
const MAGIC: &[u8] = b"attnscope-units 1 ";
/// Digits of a length.
const N_DIGITS: usize = 16;
/// Bytes of a head, with the end of its line.
const HEAD: usize = MAGIC.len() + 2 * (N_DIGITS + 1) + 64 + 1;
/// Bytes of a block's records at most. A worker writes a block long before.
const MOST_RECORDS: u64 = 256 << 20;
/// Bytes searched at a time for the next head.
const PIECE: usize = 1 << 20;

/// A block of a packed part.
#[derive(Debug)]
pub(super) struct Packed {
    pub records: Vec<UnitRecord>,
    /// Where the rows begin in the file, and their length in bytes.
    pub rows: (u64, u64),
    /// Bytes of the whole block.
    pub bytes: u64,
}

/// A block that cannot be used.
#[derive(Debug, PartialEq)]
pub(super) struct Damaged {
    /// Where the block begins in the file.
    pub at: u64,
    /// Its units, if they can still be read.
    pub records: Vec<UnitRecord>,
}

/// Lengths and digest of a head.
struct Head {
    n_records: u64,
    n_rows: u64,
    digest: String,
}

impl Head {
    /// Makes the head of records, as JSON, and of rows.
    fn of(records: &[u8], rows: &[u8]) -> Self {
        let (n_records, n_rows) = (records.len() as u64, rows.len() as u64);
        let digest = digest_of(n_records, n_rows, records);
        Self {
            n_records,
            n_rows,
            digest,
        }
    }

    fn text(&self) -> String {
        let magic = String::from_utf8_lossy(MAGIC);
        format!(
            "{magic}{}{}\n",
            lengths(self.n_records, self.n_rows),
            self.digest
        )
    }

    /// Reads a head; `None` if the bytes are none.
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.strip_prefix(MAGIC)?).ok()?;
        let mut words = text.strip_suffix('\n')?.split(' ');
        let mut length = || {
            let word = words.next().filter(|word| word.len() == N_DIGITS)?;
            word.parse().ok()
        };
        let (n_records, n_rows) = (length()?, length()?);
        let digest = words.next()?.to_owned();
        if n_records > MOST_RECORDS {
            return None;
        }
        let head = Self {
            n_records,
            n_rows,
            digest,
        };
        words.next().is_none().then_some(head)
    }

    /// Returns where its block ends; `None` if no file is that long.
    fn end(&self, at: u64) -> Option<u64> {
        let begin = at.checked_add(HEAD as u64)?;
        begin.checked_add(self.n_records)?.checked_add(self.n_rows)
    }
}

fn lengths(n_records: u64, n_rows: u64) -> String {
    format!("{n_records:0N_DIGITS$} {n_rows:0N_DIGITS$} ")
}

fn digest_of(n_records: u64, n_rows: u64, records: &[u8]) -> String {
    digest::of_joined(&[lengths(n_records, n_rows).as_bytes(), records])
}

/// A packed part that this process appends to. No other process ever writes to the file.
#[derive(Debug)]
pub(super) struct Pack {
    file: File,
    path: PathBuf,
    /// Bytes of whole blocks.
    len: u64,
}

impl Pack {
    /// Creates a file of an unused name. Names are in the order of time.
    ///
    /// # Errors
    /// When nothing can be written in the directory.
    pub fn create(directory: &Path) -> Result<Self> {
        let cannot = |e: io::Error| Error::file(directory, format!("cannot be written ({e})"));
        fs::create_dir_all(directory).map_err(cannot)?;
        loop {
            let path = directory.join(unused_name());
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file, path, len: 0 }),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(cannot(e)),
            }
        }
    }

    /// Appends a block and flushes it to disk. After an error the file ends with the block before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, records: &[UnitRecord], rows: &[u8]) -> Result<()> {
        let cannot = |e: io::Error| Error::file(&self.path, format!("cannot be written ({e})"));
        let mut records = serde_json::to_vec(records).map_err(|e| cannot(e.into()))?;
        records.push(b'\n');
        let head = Head::of(&records, rows).text();
        let block = [head.as_bytes(), &records, rows].concat();
        let written = undisturbed(|| {
            self.file.write_all(&block)?;
            self.file.sync_data()
        });
        if let Err(e) = written {
            // Readers skip what is left if this fails too.
            let _ = self.file.set_len(self.len);
            return Err(cannot(e));
        }
        self.len += block.len() as u64;
        Ok(())
    }
}

/// Returns a name that no other process chooses: time, machine, process and a counter.
fn unused_name() -> String {
    static NTH: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as u64);
    let process = std::process::id();
    let nth = NTH.fetch_add(1, Ordering::Relaxed);
    let parts = [prefix_of(process), format!("{now} {process} {nth}")];
    let mut name = digest::of_parts(parts.iter().map(String::as_bytes));
    name.truncate(16);
    format!("{now:016x}-{name}.{ENDING}")
}

/// Reads the blocks of a packed part, without their rows. A process may be appending to it.
///
/// # Errors
/// When it cannot be read.
pub(super) fn read(path: &Path) -> io::Result<(Vec<Packed>, Vec<Damaged>)> {
    let (mut blocks, mut damaged) = (Vec::new(), Vec::new());
    read_each(path, |block| match block {
        Ok(block) => blocks.push(block),
        Err(block) => damaged.push(block),
    })?;
    Ok((blocks, damaged))
}

/// Reads the blocks of a packed part one after another, as [`read`] does: no more than one is in memory.
///
/// # Errors
/// When it cannot be read, or not to its end.
pub(super) fn read_each(
    path: &Path,
    mut each: impl FnMut(std::result::Result<Packed, Damaged>),
) -> io::Result<()> {
    let file = open_regular(path)?;
    let len = file.metadata()?.len();
    let mut at = 0;
    while len - at >= HEAD as u64 {
        let head = head_at(&file, at)?;
        let is_head = head.is_some();
        let whole = head.and_then(|head| Some((head.end(at).filter(|end| *end <= len)?, head)));
        let Some((end, head)) = whole else {
            let next = next_head(&file, at + 1, len)?;
            // A head at the end whose block is not all there: its process was killed, or is still writing.
            if next.is_none() && is_head {
                break;
            }
            each(Err(Damaged {
                at,
                records: Vec::new(),
            }));
            at = next.unwrap_or(len);
            continue;
        };
        let mut bytes = vec![0; head.n_records as usize];
        file.read_exact_at(&mut bytes, at + HEAD as u64)?;
        let records: Option<Vec<UnitRecord>> = serde_json::from_slice(&bytes).ok();
        let is_intact = digest_of(head.n_records, head.n_rows, &bytes) == head.digest;
        match records {
            Some(records) if is_intact => {
                let rows = (end - head.n_rows, head.n_rows);
                each(Ok(Packed {
                    records,
                    rows,
                    bytes: end - at,
                }));
                at = end;
            }
            records => {
                let records = records.unwrap_or_default();
                each(Err(Damaged { at, records }));
                at = next_head(&file, at + 1, len)?.unwrap_or(len);
            }
        }
    }
    Ok(())
}

/// Reads the head that begins at an offset; `None` if there is none.
fn head_at(file: &File, at: u64) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Head::read(&bytes))
}

/// Returns where the next head begins.
fn next_head(file: &File, from: u64, len: u64) -> io::Result<Option<u64>> {
    let mut from = from;
    while from + (HEAD as u64) <= len {
        let n = (PIECE as u64).min(len - from) as usize;
        let mut piece = vec![0; n];
        file.read_exact_at(&mut piece, from)?;
        let places = piece.windows(MAGIC.len()).enumerate();
        for (nth, _) in places.filter(|(_, bytes)| *bytes == MAGIC) {
            let at = from + nth as u64;
            if at + (HEAD as u64) <= len && head_at(file, at)?.is_some() {
                return Ok(Some(at));
            }
        }
        // A head may lie across two pieces.
        from += (n - (MAGIC.len() - 1).min(n - 1)) as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, rows: &[u8]) -> UnitRecord {
        let prompts = vec!["p".to_owned()];
        let mut record = UnitRecord::ended(id.to_owned(), "step-1".to_owned(), prompts, None);
        record.digest = Some(digest::of_bytes(rows));
        record
    }

    /// Writes blocks of two units each; returns the file and where each block ends.
    fn pack(directory: &Path) -> (PathBuf, Vec<usize>) {
        let mut pack = Pack::create(directory).expect("opens");
        let mut ends = Vec::new();
        for (a, b) in [("a", "b"), ("c", "d"), ("e", "f")] {
            let rows = format!("rows of {a} and {b}");
            let records = [record(a, rows.as_bytes()), record(b, rows.as_bytes())];
            pack.append(&records, rows.as_bytes()).expect("appends");
            ends.push(pack.len as usize);
        }
        (pack.path, ends)
    }

    fn ids(blocks: &[Packed]) -> String {
        let records = blocks.iter().flat_map(|block| &block.records);
        records.map(|record| record.id.as_str()).collect()
    }

    #[test]
    fn a_block_is_whole_or_not_there_wherever_its_process_is_killed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, ends) = pack(directory.path());
        let whole = fs::read(&path).expect("reads");
        let (blocks, damaged) = read(&path).expect("reads");
        assert_eq!((ids(&blocks).as_str(), damaged.len()), ("abcdef", 0));
        for block in &blocks {
            let (start, len) = block.rows;
            let rows = &whole[start as usize..(start + len) as usize];
            let expected = Some(digest::of_bytes(rows));
            assert!(block.records.iter().all(|record| record.digest == expected));
        }
        let torn = directory.path().join("torn");
        for n in 0..whole.len() {
            fs::write(&torn, &whole[..n]).expect("writes");
            let (blocks, damaged) = read(&torn).expect("reads");
            let n_whole = ends.iter().filter(|end| **end <= n).count();
            assert_eq!(ids(&blocks), "abcdef"[..2 * n_whole], "{n} bytes");
            assert_eq!(damaged, [], "{n} bytes");
        }
    }

    #[test]
    fn a_damaged_block_is_told_with_its_units_and_the_others_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, ends) = pack(directory.path());
        let whole = fs::read(&path).expect("reads");
        let of = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            fs::write(&path, bytes).expect("writes");
            read(&path).expect("reads")
        };
        let (second, third) = (ends[0], ends[1]);
        // In the magic, in a length (too long, and a little too long), in the digest.
        for (at, byte) in [(second + 3, b'X'), (second + 20, b'7'), (second + 33, b'9')] {
            let (blocks, damaged) = of(at, byte);
            assert_eq!(ids(&blocks), "abef", "byte {at}");
            assert_eq!(damaged[0].at, second as u64, "byte {at}");
        }
        // In a record: its units can still be named.
        let text = String::from_utf8_lossy(&whole).into_owned();
        let at = second + text[second..].find("step-1").expect("a name");
        let (blocks, damaged) = of(at, b'S');
        assert_eq!(ids(&blocks), "abef");
        assert_eq!(damaged[0].records.len(), 2);
        let (blocks, damaged) = of(third + 1, b'X');
        assert_eq!((ids(&blocks).as_str(), damaged.len()), ("abcd", 1));
    }

    #[test]
    fn processes_and_checkpoints_never_share_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let packs = [(); 20].map(|()| Pack::create(directory.path()).expect("opens"));
        let mut names: Vec<&PathBuf> = packs.iter().map(|pack| &pack.path).collect();
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), 20);
    }
}
