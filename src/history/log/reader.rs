//! Reads a log from its beginning and continues where it stopped; detects a log that was truncated or replaced.

use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use attnscope_checkpoint::open_regular;
use attnscope_compute::error::{Error, Result};
use rayon::prelude::*;

use super::header::{Header, may_begin_segment};
use super::line::{self, Item};

/// Bytes read and parsed together.
const BLOCK: usize = 32 << 20;
/// Longest line; no model's record is longer.
const LONGEST_LINE: usize = 256 << 20;
/// Bytes before the end that are compared when the log has grown: they differ if the log was rewritten.
const MARK: usize = 256;
/// Lines per parallel task.
const LINES: usize = 64;

/// A line that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Counted from 1, as editors do.
    pub number: u64,
    pub problem: String,
}

/// Result of one read of a log.
#[derive(Debug, Default)]
pub struct Batch {
    /// Set if the log was replaced: everything read before is obsolete. Says what happened.
    pub restarted: Option<&'static str>,
    /// The header, in the batch that contained it.
    pub header: Option<Header>,
    pub items: Vec<Item>,
    pub bad: Vec<BadLine>,
    /// Whether there is more to read immediately.
    pub has_more: bool,
}

/// A log that is read in pieces.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    open: Option<Open>,
    header: Option<Header>,
}

/// The open file.
#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    /// Bytes read so far.
    offset: u64,
    /// Complete lines read so far.
    n_lines: u64,
    /// The beginning of a line that is not complete yet.
    partial: Vec<u8>,
    /// The last bytes read.
    mark: Vec<u8>,
    /// Modification time at the last read.
    modified: Option<SystemTime>,
}

#[cfg(unix)]
fn identity(about: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (about.dev(), about.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

impl LogReader {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            open: None,
            header: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns the number of an incomplete last line, if there is one.
    pub fn unfinished(&self) -> Option<u64> {
        let open = self.open.as_ref()?;
        (!open.partial.is_empty()).then_some(open.n_lines + 1)
    }

    /// Reads what was written since the last call, at most some megabytes.
    ///
    /// A log that no longer exists gives an empty batch: it may just be rotated.
    ///
    /// # Errors
    /// When the file cannot be opened the first time, cannot be read, or its first line is not the header of a log.
    pub fn poll(&mut self) -> Result<Batch> {
        let mut batch = Batch {
            restarted: self.reopen()?,
            ..Batch::default()
        };
        if batch.restarted.is_some() {
            self.header = None;
        }
        let problem = |e: std::io::Error| Error::file(&self.path, format!("cannot be read ({e})"));
        let Some(open) = &mut self.open else {
            return Ok(batch);
        };
        let mut block = std::mem::take(&mut open.partial);
        let n_before = block.len();
        let n_read = (&open.file)
            .take(BLOCK as u64)
            .read_to_end(&mut block)
            .map_err(problem)?;
        open.offset += n_read as u64;
        batch.has_more = n_read == BLOCK;
        if n_read > 0 {
            open.mark = block[block.len().saturating_sub(MARK)..].to_vec();
            open.modified = open.file.metadata().and_then(|about| about.modified()).ok();
        }
        let last_end = block[n_before..].iter().rposition(|byte| *byte == b'\n');
        let Some(end) = last_end.map(|at| n_before + at + 1) else {
            if block.len() > LONGEST_LINE {
                let problem = format!("line {} is longer than 256 MiB", open.n_lines + 1);
                return Err(Error::file(&self.path, problem));
            }
            if self.header.is_none() && !may_be_header(&block) {
                let found = Header::read(&block).err().unwrap_or_default();
                return Err(Error::file(&self.path, found));
            }
            open.partial = block;
            return Ok(batch);
        };
        open.partial = block.split_off(end);
        let first_number = open.n_lines + 1;
        let mut lines: Vec<(u64, &[u8])> = Vec::new();
        for (number, line) in (first_number..).zip(block[..end - 1].split(|byte| *byte == b'\n')) {
            open.n_lines = number;
            lines.push((number, line.strip_suffix(b"\r").unwrap_or(line)));
        }
        let mut rest = lines.as_slice();
        if self.header.is_none()
            && let Some(((number, line), others)) = rest.split_first()
        {
            debug_assert_eq!(*number, 1, "the header is the first line");
            let header = Header::read(line).map_err(|problem| Error::file(&self.path, problem))?;
            batch.header = Some(header.clone());
            self.header = Some(header);
            rest = others;
        }
        if let Some(header) = &mut self.header {
            (batch.items, batch.bad) = read_segments(rest, header);
        }
        Ok(batch)
    }

    /// Ensures that the file is open and still the same. Otherwise opens the new one and says what happened.
    fn reopen(&mut self) -> Result<Option<&'static str>> {
        let about = self.path.metadata();
        let what = match (&self.open, about) {
            (None, _) => None,
            // The file was moved: the open one may still be written to.
            (Some(_), Err(_)) => return Ok(None),
            (Some(open), Ok(about)) => match () {
                () if identity(&about) != open.identity => Some("it was replaced"),
                () if about.len() < open.offset => Some("it was cut short"),
                () if about.modified().ok() != open.modified && !open.has_mark() => {
                    Some("it was written anew")
                }
                () => return Ok(None),
            },
        };
        let opened = open_regular(&self.path).and_then(|file| Ok((file.metadata()?, file)));
        let (about, file) = match opened {
            Ok(opened) => opened,
            Err(_) if self.open.is_some() => return Ok(None),
            Err(e) => return Err(Error::file(&self.path, format!("cannot be read ({e})"))),
        };
        if about.is_dir() {
            return Err(Error::file(&self.path, "expected a log, found a directory"));
        }
        self.open = Some(Open {
            identity: identity(&about),
            file,
            offset: 0,
            n_lines: 0,
            partial: Vec::new(),
            mark: Vec::new(),
            modified: None,
        });
        Ok(what)
    }
}

impl Open {
    /// Whether the last bytes read are still at their offset.
    fn has_mark(&self) -> bool {
        let mut found = vec![0; self.mark.len()];
        let start = self.offset - self.mark.len() as u64;
        let mut file = &self.file;
        let read = file
            .seek(SeekFrom::Start(start))
            .and_then(|_| file.read_exact(&mut found));
        let is_back = file.seek(SeekFrom::Start(self.offset)).is_ok();
        read.is_ok() && is_back && found == self.mark
    }
}

/// Whether an incomplete first line can still become a header.
fn may_be_header(start: &[u8]) -> bool {
    let text = start.trim_ascii_start();
    text.is_empty() || text[0] == b'{'
}

/// Parses lines, each by the header of its segment; `header` ends as that of the last segment.
fn read_segments(mut lines: &[(u64, &[u8])], header: &mut Header) -> (Vec<Item>, Vec<BadLine>) {
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    while let Some((number, first)) = lines.first() {
        let others = lines[1..].iter();
        let n = others.take_while(|(_, line)| !may_begin_segment(line));
        let (mut segment, rest) = lines.split_at(n.count() + 1);
        if may_begin_segment(first) {
            match Header::read_segment(first) {
                Ok(Some(other)) if !other.has_shape_of(header) => {
                    items.push(Item::Segment(Some(Box::new(other.clone()))));
                    *header = other;
                    segment = &segment[1..];
                }
                Ok(_) => {}
                Err(problem) => bad.push(BadLine {
                    number: *number,
                    problem,
                }),
            }
        }
        let parts: Vec<_> = segment
            .par_chunks(LINES)
            .map(|lines| read_lines(lines, header))
            .collect();
        for (read, unread) in parts {
            items.extend(read);
            bad.extend(unread);
        }
        lines = rest;
    }
    (items, bad)
}

fn read_lines(lines: &[(u64, &[u8])], header: &Header) -> (Vec<Item>, Vec<BadLine>) {
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match line::read(line, header) {
            Ok(item) => items.push(item),
            Err(problem) => bad.push(BadLine {
                number: *number,
                problem,
            }),
        }
    }
    (items, bad)
}

/// Parses a whole log as one batch.
///
/// # Errors
/// When its first line is not the header of a log.
pub fn batch_of(name: &str, text: &str) -> Result<Batch> {
    let problem = |problem: String| Error::file(name, problem);
    let mut lines = text.lines();
    let header = Header::read(lines.next().unwrap_or_default().as_bytes()).map_err(problem)?;
    let lines: Vec<(u64, &[u8])> = (2..).zip(lines.map(str::as_bytes)).collect();
    let (items, bad) = read_segments(&lines, &mut header.clone());
    Ok(Batch {
        header: Some(header),
        items,
        bad,
        ..Batch::default()
    })
}
