//! The index of a zip archive: locates the bytes of each stored entry. Nothing is inflated, and no content is read.
//!
//! Layout from PKWARE's APPNOTE 6.3, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory) and 4.5.3 (zip64).

use std::collections::BTreeMap;
use std::ops::Range;

use super::state_dict::Problem;
use super::value::quote;
use crate::section::Section;

const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const CENTRAL_HEADER: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const ZIP64_END: &[u8] = b"PK\x06\x06";
const ZIP64_LOCATOR: &[u8] = b"PK\x06\x07";

const LOCAL_HEADER_LEN: usize = 30;
const CENTRAL_HEADER_LEN: usize = 46;
const END_LEN: usize = 22;
const ZIP64_LOCATOR_LEN: usize = 20;
const ZIP64_END_LEN: usize = 56;
const LONGEST_COMMENT: usize = 0xffff;
/// Limit on the bytes of the central directory: a million entries with names of 200 letters.
const LONGEST_DIRECTORY: usize = 1 << 28;
/// Id of the extra field for values that do not fit into 32 bits.
const ZIP64_FIELD: u16 = 1;

/// One file of the archive.
#[derive(Debug, PartialEq)]
struct Entry {
    method: u16,
    is_encrypted: bool,
    inflated: u64,
    bytes: Range<usize>,
}

/// The files of an archive, by name.
#[derive(Debug)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Reads the central directory and checks every entry against the file and the other entries. Places are counted from the
    /// first byte of the section.
    ///
    /// # Errors
    /// One clause that says which entry is invalid and why, or why the file cannot be read.
    pub fn read(file: &Section<'_>) -> Result<Self, Problem> {
        let directory = Directory::find(file)?;
        let listed = file.read(directory.bytes.clone())?;
        let mut entries = BTreeMap::new();
        let mut taken: Vec<(Range<usize>, String)> = Vec::new();
        let mut at = 0;
        for _ in 0..directory.n_entries {
            let Some(header) = Header::read(&listed[at..]) else {
                let problem = "the central directory is truncated or damaged";
                return Err(problem.to_owned().into());
            };
            at += header.n_bytes;
            let (whole, bytes) = header
                .place(file, directory.bytes.start)
                .map_err(|problem| match problem {
                    Problem::File(problem) => {
                        Problem::File(format!("entry {}: {problem}", quote(&header.name)))
                    }
                    other => other,
                })?;
            taken.push((whole, header.name.clone()));
            let entry = Entry {
                method: header.method,
                is_encrypted: header.is_encrypted,
                inflated: header.inflated,
                bytes,
            };
            if entries.insert(header.name.clone(), entry).is_some() {
                let name = quote(&header.name);
                let problem = format!("entry {name} stands twice in the central directory");
                return Err(problem.into());
            }
        }
        if at != listed.len() {
            let n = directory.n_entries;
            let problem =
                format!("the central directory holds more than the {n} entries it claims");
            return Err(problem.into());
        }
        taken.sort_by_key(|(whole, _)| whole.start);
        for pair in taken.windows(2) {
            if let [(first, name), (second, other)] = pair
                && second.start < first.end
            {
                let (name, other) = (quote(name), quote(other));
                return Err(format!("entries {name} and {other} overlap").into());
            }
        }
        Ok(Self { entries })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Returns the claimed inflated size of a deflated entry; `None` for any other entry.
    pub fn unpacks_to(&self, name: &str) -> Option<u64> {
        let entry = self.entries.get(name)?;
        (entry.method == 8 && !entry.is_encrypted).then_some(entry.inflated)
    }

    /// Returns the byte range of an uncompressed entry; `None` if there is no entry of that name.
    ///
    /// # Errors
    /// When the entry is compressed or encrypted, which `torch.save` never does.
    pub fn stored(&self, name: &str) -> Result<Option<Range<usize>>, String> {
        let Some(entry) = self.entries.get(name) else {
            return Ok(None);
        };
        let name = quote(name);
        if entry.is_encrypted {
            return Err(format!("entry {name} is encrypted; expected plain bytes"));
        }
        match entry.method {
            0 if entry.bytes.len() as u64 == entry.inflated => Ok(Some(entry.bytes.clone())),
            0 => Err(format!(
                "entry {name} claims {} bytes, {} are stored",
                entry.inflated,
                entry.bytes.len()
            )),
            8 => Err(format!(
                "entry {name} is compressed (deflate); expected it stored, as torch.save writes it"
            )),
            other => Err(format!(
                "entry {name} is compressed (method {other}); expected it stored, as torch.save writes it"
            )),
        }
    }
}

struct Directory {
    bytes: Range<usize>,
    n_entries: u64,
}

impl Directory {
    /// Finds the central directory through the records at the end of the file.
    fn find(file: &Section<'_>) -> Result<Self, Problem> {
        // The largest range in which the last record and the zip64 locator before it can be.
        let n_tail = ZIP64_LOCATOR_LEN + END_LEN + LONGEST_COMMENT;
        let tail_at = file.len().saturating_sub(n_tail);
        let tail = file.read(tail_at..file.len())?;
        let Some(end) = end_record(&tail) else {
            let problem =
                "truncated or no zip archive: the end of the central directory is missing";
            return Err(problem.to_owned().into());
        };
        let n_entries = u64::from(u16_at(&tail, end + 10).unwrap_or(0));
        let n_bytes = u64::from(u32_at(&tail, end + 12).unwrap_or(0));
        let start = u64::from(u32_at(&tail, end + 16).unwrap_or(0));
        let is_zip64 = n_entries == 0xffff || n_bytes == 0xffff_ffff || start == 0xffff_ffff;
        let (n_entries, n_bytes, start, limit) = if is_zip64 {
            let damaged = || "the zip64 end of the central directory is damaged".to_owned();
            let at = zip64_record(&tail, end).ok_or_else(damaged)?;
            let locator = tail_at + end - ZIP64_LOCATOR_LEN;
            let record = file.read(at..at.saturating_add(ZIP64_END_LEN).min(locator))?;
            zip64_end(&record, at).ok_or_else(damaged)?
        } else {
            (n_entries, n_bytes, start, tail_at + end)
        };
        let range = usize::try_from(start)
            .ok()
            .zip(usize::try_from(n_bytes).ok())
            .and_then(|(start, n)| Some(start..start.checked_add(n)?));
        match range {
            Some(bytes) if bytes.end <= limit && bytes.len() <= LONGEST_DIRECTORY => {
                Ok(Self { bytes, n_entries })
            }
            _ => Err(Problem::File(format!(
                "truncated or damaged: the central directory claims {n_bytes} bytes at {start}, the file holds {}",
                file.len()
            ))),
        }
    }
}

/// Finds the last end record whose comment reaches exactly to the end of the file.
fn end_record(tail: &[u8]) -> Option<usize> {
    let last = tail.len().checked_sub(END_LEN)?;
    let first = last.saturating_sub(LONGEST_COMMENT);
    (first..=last).rev().find(|&at| {
        let comment = u16_at(tail, at + 20).map_or(0, usize::from);
        tail[at..].starts_with(END) && at + END_LEN + comment == tail.len()
    })
}

/// Finds the zip64 end record through the locator before the end record.
fn zip64_record(tail: &[u8], end: usize) -> Option<usize> {
    let locator = end.checked_sub(ZIP64_LOCATOR_LEN)?;
    if !tail[locator..].starts_with(ZIP64_LOCATOR) {
        return None;
    }
    usize::try_from(u64_at(tail, locator + 8)?).ok()
}

/// Reads the number of entries, size and start of a zip64 archive's central directory, and the limit of its end.
fn zip64_end(record: &[u8], at: usize) -> Option<(u64, u64, u64, usize)> {
    if !record.starts_with(ZIP64_END) {
        return None;
    }
    let field = |offset: usize| u64_at(record, offset);
    Some((field(32)?, field(40)?, field(48)?, at))
}

/// One entry of the central directory.
struct Header {
    name: String,
    /// The undecoded name.
    name_bytes: Vec<u8>,
    method: u16,
    is_encrypted: bool,
    stored: u64,
    inflated: u64,
    local: u64,
    /// Length of this header in bytes.
    n_bytes: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(CENTRAL_HEADER) {
            return None;
        }
        let name_len = usize::from(u16_at(bytes, 28)?);
        let extra_len = usize::from(u16_at(bytes, 30)?);
        let comment_len = usize::from(u16_at(bytes, 32)?);
        let extra_at = CENTRAL_HEADER_LEN + name_len;
        let n_bytes = extra_at + extra_len + comment_len;
        if bytes.len() < n_bytes {
            return None;
        }
        let mut header = Self {
            name: String::from_utf8_lossy(&bytes[CENTRAL_HEADER_LEN..extra_at]).into_owned(),
            name_bytes: bytes[CENTRAL_HEADER_LEN..extra_at].to_vec(),
            method: u16_at(bytes, 10)?,
            is_encrypted: u16_at(bytes, 8)? & 1 != 0,
            stored: u64::from(u32_at(bytes, 20)?),
            inflated: u64::from(u32_at(bytes, 24)?),
            local: u64::from(u32_at(bytes, 42)?),
            n_bytes,
        };
        header.widen(&bytes[extra_at..extra_at + extra_len])?;
        Some(header)
    }

    /// Replaces values that do not fit into 32 bits, which the zip64 field holds in this order.
    fn widen(&mut self, extra: &[u8]) -> Option<()> {
        let mut too_wide: Vec<&mut u64> = [&mut self.inflated, &mut self.stored, &mut self.local]
            .into_iter()
            .filter(|n| **n == 0xffff_ffff)
            .collect();
        if too_wide.is_empty() {
            return Some(());
        }
        let mut at = 0;
        while let (Some(id), Some(n)) = (u16_at(extra, at), u16_at(extra, at + 2)) {
            let field = extra.get(at + 4..at + 4 + usize::from(n))?;
            if id == ZIP64_FIELD {
                for (idx, n) in too_wide.iter_mut().enumerate() {
                    **n = u64_at(field, idx * 8)?;
                }
                return Some(());
            }
            at += 4 + usize::from(n);
        }
        None
    }

    /// Locates the whole entry with its local header, and its content.
    fn place(
        &self,
        file: &Section<'_>,
        limit: usize,
    ) -> Result<(Range<usize>, Range<usize>), Problem> {
        let outside = || {
            format!(
                "claims {} bytes at {}, outside the {} before the central directory",
                self.stored, self.local, limit
            )
        };
        let local = usize::try_from(self.local).map_err(|_| outside())?;
        if local >= limit {
            return Err(outside().into());
        }
        let name_at = local.saturating_add(LOCAL_HEADER_LEN);
        let header = file.read(local..name_at.saturating_add(self.name_bytes.len()))?;
        if !header.starts_with(LOCAL_HEADER) {
            return Err(format!("no local header at {local}").into());
        }
        let lengths = u16_at(&header, 26).zip(u16_at(&header, 28));
        let (name_len, extra_len) = lengths.ok_or_else(outside)?;
        let start = name_at + usize::from(name_len) + usize::from(extra_len);
        let has_its_name = usize::from(name_len) == self.name_bytes.len()
            && header.get(LOCAL_HEADER_LEN..) == Some(&self.name_bytes[..]);
        if !has_its_name {
            return Err("its local header has another name".to_owned().into());
        }
        let n = usize::try_from(self.stored).map_err(|_| outside())?;
        match start.checked_add(n) {
            Some(end) if end <= limit => Ok((local..end, start..end)),
            _ => Err(outside().into()),
        }
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_file::DataFile;

    fn read(bytes: &[u8]) -> Result<Archive, Problem> {
        Archive::read(&Section::whole(&DataFile::in_memory(bytes)))
    }

    #[test]
    fn an_archive_without_entries_is_read() {
        let bytes = [END, &[0; 18]].concat();
        let archive = read(&bytes).expect("an archive");
        assert_eq!(archive.names().count(), 0);
        assert_eq!(archive.stored("data.pkl"), Ok(None));
    }

    #[test]
    fn the_end_record_is_found_before_a_comment() {
        let comment = [END, &[0xff; 30]].concat();
        let bytes = [END, &[0; 16], &[comment.len() as u8, 0], &comment[..]].concat();
        assert_eq!(end_record(&bytes), Some(0));
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_directory_beyond_the_file_is_refused() {
        let numbers = |n: u32, start: u32| {
            let (n, start) = (n.to_le_bytes(), start.to_le_bytes());
            [END, &[0, 0, 0, 0, 1, 0, 1, 0], &n, &start, &[0, 0]].concat()
        };
        for (n, start) in [(46, 0), (0, 1), (u32::MAX - 1, u32::MAX - 1), (u32::MAX, 0)] {
            assert!(read(&numbers(n, start)).is_err(), "{n} at {start}");
        }
    }
}
