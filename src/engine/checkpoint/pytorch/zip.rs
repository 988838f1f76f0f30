//! The index of a zip archive: where each stored entry's bytes lie. Nothing is copied, and nothing is inflated.
//!
//! Layout after PKWARE's APPNOTE 6.3, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory) and 4.5.3 (zip64).

use std::collections::BTreeMap;
use std::ops::Range;

use super::value::quote;

const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const CENTRAL_HEADER: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const ZIP64_END: &[u8] = b"PK\x06\x06";
const ZIP64_LOCATOR: &[u8] = b"PK\x06\x07";

const LOCAL_HEADER_LEN: usize = 30;
const CENTRAL_HEADER_LEN: usize = 46;
const END_LEN: usize = 22;
const ZIP64_LOCATOR_LEN: usize = 20;
const LONGEST_COMMENT: usize = 0xffff;
/// The extra field that holds what does not fit into 32 bits.
const ZIP64_FIELD: u16 = 1;

/// One file of the archive.
#[derive(Debug, PartialEq)]
struct Entry {
    method: u16,
    is_encrypted: bool,
    inflated: u64,
    bytes: Range<usize>,
}

/// The files of an archive by name.
#[derive(Debug)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Reads the directory at the end, and checks every entry against the file and against the others.
    ///
    /// # Errors
    /// One clause that says which entry is wrong, and how.
    pub fn read(data: &[u8]) -> Result<Self, String> {
        let directory = directory(data)?;
        let mut entries = BTreeMap::new();
        let mut taken: Vec<(Range<usize>, String)> = Vec::new();
        let mut at = directory.bytes.start;
        for _ in 0..directory.n_entries {
            let left = &data[at..directory.bytes.end];
            let Some(header) = Header::read(left) else {
                return Err("the central directory is truncated or damaged".to_owned());
            };
            at += header.n_bytes;
            let (whole, bytes) = header
                .place(data, directory.bytes.start)
                .map_err(|e| format!("entry {}: {e}", quote(&header.name)))?;
            taken.push((whole, header.name.clone()));
            let entry = Entry {
                method: header.method,
                is_encrypted: header.is_encrypted,
                inflated: header.inflated,
                bytes,
            };
            if entries.insert(header.name.clone(), entry).is_some() {
                let name = quote(&header.name);
                return Err(format!(
                    "entry {name} stands twice in the central directory"
                ));
            }
        }
        if at != directory.bytes.end {
            let n = directory.n_entries;
            return Err(format!(
                "the central directory holds more than the {n} entries it claims"
            ));
        }
        taken.sort_by_key(|(whole, _)| whole.start);
        for pair in taken.windows(2) {
            if let [(first, name), (second, other)] = pair
                && second.start < first.end
            {
                let (name, other) = (quote(name), quote(other));
                return Err(format!("entries {name} and {other} overlap"));
            }
        }
        Ok(Self { entries })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The bytes of an entry that lies in the file as it is; `None` when there is none of that name.
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

/// Finds the directory through the records at the end of the file.
fn directory(data: &[u8]) -> Result<Directory, String> {
    let Some(end) = end_record(data) else {
        return Err(
            "truncated or no zip archive: the end of the central directory is missing".to_owned(),
        );
    };
    let n_entries = u64::from(u16_at(data, end + 10).unwrap_or(0));
    let n_bytes = u64::from(u32_at(data, end + 12).unwrap_or(0));
    let start = u64::from(u32_at(data, end + 16).unwrap_or(0));
    let (n_entries, n_bytes, start, limit) =
        if n_entries == 0xffff || n_bytes == 0xffff_ffff || start == 0xffff_ffff {
            zip64_end(data, end).ok_or("the zip64 end of the central directory is damaged")?
        } else {
            (n_entries, n_bytes, start, end)
        };
    let range = usize::try_from(start)
        .ok()
        .zip(usize::try_from(n_bytes).ok())
        .and_then(|(start, n)| Some(start..start.checked_add(n)?));
    match range {
        Some(bytes) if bytes.end <= limit => Ok(Directory { bytes, n_entries }),
        _ => Err(format!(
            "truncated or damaged: the central directory claims {n_bytes} bytes at {start}, the file holds {}",
            data.len()
        )),
    }
}

/// The last record whose comment reaches exactly to the end of the file.
fn end_record(data: &[u8]) -> Option<usize> {
    let last = data.len().checked_sub(END_LEN)?;
    let first = last.saturating_sub(LONGEST_COMMENT);
    (first..=last).rev().find(|&at| {
        let comment = u16_at(data, at + 20).map_or(0, usize::from);
        data[at..].starts_with(END) && at + END_LEN + comment == data.len()
    })
}

/// Entries, bytes and start of the directory, and where it must end, for archives beyond 32 bits.
fn zip64_end(data: &[u8], end: usize) -> Option<(u64, u64, u64, usize)> {
    let locator = end.checked_sub(ZIP64_LOCATOR_LEN)?;
    if !data[locator..].starts_with(ZIP64_LOCATOR) {
        return None;
    }
    let at = usize::try_from(u64_at(data, locator + 8)?).ok()?;
    if at >= locator || !data[at..].starts_with(ZIP64_END) {
        return None;
    }
    let field = |offset: usize| u64_at(data, at + offset);
    Some((field(32)?, field(40)?, field(48)?, at))
}

/// One entry of the central directory.
struct Header {
    name: String,
    method: u16,
    is_encrypted: bool,
    stored: u64,
    inflated: u64,
    local: u64,
    /// Bytes of the header itself.
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

    /// Replaces the numbers that do not fit into 32 bits, in the order in which the extra field holds them.
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

    /// The bytes of the entry with its local header, and those of its content.
    fn place(&self, data: &[u8], limit: usize) -> Result<(Range<usize>, Range<usize>), String> {
        let outside = || {
            format!(
                "claims {} bytes at {}, outside the {} before the central directory",
                self.stored, self.local, limit
            )
        };
        let local = usize::try_from(self.local).map_err(|_| outside())?;
        if local >= limit {
            return Err(outside());
        }
        if !data[local..].starts_with(LOCAL_HEADER) {
            return Err(format!("no local header at {local}"));
        }
        let lengths = u16_at(data, local + 26).zip(u16_at(data, local + 28));
        let (name_len, extra_len) = lengths.ok_or_else(outside)?;
        let name_at = local + LOCAL_HEADER_LEN;
        let extra_at = name_at + usize::from(name_len);
        let start = extra_at + usize::from(extra_len);
        let name = data.get(name_at..extra_at).ok_or_else(outside)?;
        if String::from_utf8_lossy(name) != self.name {
            return Err("its local header has another name".to_owned());
        }
        let n = usize::try_from(self.stored).map_err(|_| outside())?;
        match start.checked_add(n) {
            Some(end) if end <= limit => Ok((local..end, start..end)),
            _ => Err(outside()),
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

    #[test]
    fn an_archive_without_entries_is_read() {
        let bytes = [END, &[0; 18]].concat();
        let archive = Archive::read(&bytes).expect("an archive");
        assert_eq!(archive.names().count(), 0);
        assert_eq!(archive.stored("data.pkl"), Ok(None));
    }

    #[test]
    fn the_end_is_found_before_a_comment() {
        let comment = [END, &[0xff; 30]].concat();
        let bytes = [END, &[0; 16], &[comment.len() as u8, 0], &comment[..]].concat();
        assert_eq!(end_record(&bytes), Some(0));
        assert!(Archive::read(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_directory_beyond_the_file_is_refused() {
        let numbers = |n: u32, start: u32| {
            let (n, start) = (n.to_le_bytes(), start.to_le_bytes());
            [END, &[0, 0, 0, 0, 1, 0, 1, 0], &n, &start, &[0, 0]].concat()
        };
        for (n, start) in [(46, 0), (0, 1), (u32::MAX - 1, u32::MAX - 1), (u32::MAX, 0)] {
            assert!(Archive::read(&numbers(n, start)).is_err(), "{n} at {start}");
        }
    }
}
