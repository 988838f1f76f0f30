//! Records of files that loggers append to: TensorBoard's event files, and the files of W&B's runs. Both are read from any record on,
//! as far as they are written.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use super::checksum::{CASTAGNOLI, IEEE, masked};

/// Longest record that is read; longer ones are passed over, since those of numbers are short.
const LONGEST: u64 = 1 << 20;
/// Bytes of a block in W&B's files. No part of a record goes beyond its block.
const BLOCK: u64 = 1 << 15;
/// Bytes before the data of a part in W&B's files: checksum, length and kind. Shorter ends of blocks are empty.
const PART: u64 = 7;
/// First bytes of W&B's files; a version follows.
const WANDB: &[u8; 6] = b":W&B\xe1\xbe";

/// How records are put into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Framing {
    /// Length and data of each record, each with a checksum (TFRecord).
    Events,
    /// A file header, and blocks of parts of records (the log format of LevelDB).
    Wandb,
}

/// State after a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// Offset of the first record that is not read yet.
    pub offset: u64,
    /// Description of the first damage; records after it are read where they can be found.
    pub damage: Option<String>,
    /// Whether more records can be read immediately.
    pub has_more: bool,
}

impl Framing {
    /// Reads records of a file that is `end` bytes long, from `offset` on, until about `budget` bytes were read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(
        self,
        file: File,
        offset: u64,
        end: u64,
        budget: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Reached> {
        let mut from = Bytes {
            file: BufReader::with_capacity(1 << 16, file),
            at: offset,
            end,
        };
        from.file.seek(SeekFrom::Start(offset))?;
        let stop = offset.saturating_add(budget);
        match self {
            Self::Events => events(&mut from, stop, take),
            Self::Wandb => wandb(&mut from, stop, take),
        }
    }
}

/// The bytes of a file between a place and its end.
struct Bytes {
    file: BufReader<File>,
    at: u64,
    end: u64,
}

impl Bytes {
    fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Appends `n` bytes, at most [`LONGEST`], to a buffer.
    fn append(&mut self, n: u64, to: &mut Vec<u8>) -> io::Result<()> {
        let start = to.len();
        to.resize(start + n as usize, 0);
        self.file.read_exact(&mut to[start..])?;
        self.at += n;
        Ok(())
    }

    fn skip(&mut self, n: u64) -> io::Result<()> {
        // What is skipped lies within the file, so that it fits.
        self.file.seek_relative(n.cast_signed())?;
        self.at += n;
        Ok(())
    }
}

fn events(from: &mut Bytes, stop: u64, take: &mut dyn FnMut(&[u8])) -> io::Result<Reached> {
    let mut reached = Reached {
        offset: from.at,
        ..Reached::default()
    };
    let mut data = Vec::new();
    // Bytes that are skipped cost nothing.
    let mut stop = stop;
    while from.left() >= 12 {
        if from.at >= stop {
            reached.has_more = true;
            break;
        }
        let length: [u8; 8] = from.array()?;
        let sum = u32::from_le_bytes(from.array()?);
        if masked(CASTAGNOLI.checksum(&length)) != sum {
            let found = format!(
                "the record at byte {} is damaged, and what follows cannot be read",
                reached.offset
            );
            reached.damage.get_or_insert(found);
            break;
        }
        let length = u64::from_le_bytes(length);
        if from.left().checked_sub(4).is_none_or(|left| left < length) {
            break;
        }
        if length > LONGEST {
            from.skip(length + 4)?;
            stop = stop.saturating_add(length);
        } else {
            data.clear();
            from.append(length, &mut data)?;
            let sum = u32::from_le_bytes(from.array()?);
            if masked(CASTAGNOLI.checksum(&data)) == sum {
                take(&data);
            } else {
                let found = format!(
                    "the record at byte {} is damaged, and left out",
                    reached.offset
                );
                reached.damage.get_or_insert(found);
            }
        }
        reached.offset = from.at;
    }
    Ok(reached)
}

fn wandb(from: &mut Bytes, stop: u64, take: &mut dyn FnMut(&[u8])) -> io::Result<Reached> {
    let mut reached = Reached {
        offset: from.at,
        ..Reached::default()
    };
    if from.at == 0 {
        if from.left() < PART {
            return Ok(reached);
        }
        let start: [u8; PART as usize] = from.array()?;
        if !start.starts_with(WANDB) {
            reached.damage = Some("expected a run of W&B, found other bytes".to_owned());
            return Ok(reached);
        }
        reached.offset = from.at;
    }
    // The parts of the record that is being read; `None` between records and after damage.
    let mut record: Option<Vec<u8>> = None;
    let mut part = Vec::new();
    loop {
        let left_in_block = BLOCK - from.at % BLOCK;
        if left_in_block < PART {
            if from.left() < left_in_block {
                break;
            }
            from.skip(left_in_block)?;
            continue;
        }
        if record.is_none() && from.at >= stop && from.left() >= PART {
            reached.has_more = true;
            break;
        }
        if from.left() < PART {
            break;
        }
        let begin = from.at;
        let sum = u32::from_le_bytes(from.array()?);
        let length = u64::from(u16::from_le_bytes(from.array()?));
        let [kind] = from.array()?;
        let fits = PART + length <= left_in_block;
        if fits && from.left() < length {
            break;
        }
        part.clear();
        part.push(kind);
        if fits {
            from.append(length, &mut part)?;
        }
        if !fits || !(1..=4).contains(&kind) || IEEE.checksum(&part) != sum {
            // The next block begins with a part that can be read.
            let next = (begin / BLOCK + 1) * BLOCK;
            let found = format!("the record at byte {begin} is damaged, and left out");
            reached.damage.get_or_insert(found);
            if next > from.end {
                break;
            }
            record = None;
            from.file.seek(SeekFrom::Start(next))?;
            (from.at, reached.offset) = (next, next);
            continue;
        }
        let data = &part[1..];
        match kind {
            1 => take(data),
            2 => record = Some(data.to_vec()),
            _ => {
                if let Some(record) = &mut record
                    && record.len() as u64 <= LONGEST
                {
                    record.extend(data);
                }
                if kind == 4
                    && let Some(record) = record.take()
                    && record.len() as u64 <= LONGEST
                {
                    take(&record);
                }
            }
        }
        if record.is_none() {
            reached.offset = from.at;
        }
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_record(data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u64).to_le_bytes();
        let sum = |bytes: &[u8]| masked(CASTAGNOLI.checksum(bytes)).to_le_bytes();
        [&length[..], &sum(&length), data, &sum(data)].concat()
    }

    /// Makes a W&B file of records.
    fn wandb_file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut file = [&WANDB[..], &[0]].concat();
        for record in records {
            let (mut rest, mut is_first) = (record.as_slice(), true);
            loop {
                let left = (BLOCK - file.len() as u64 % BLOCK) as usize;
                if left < PART as usize {
                    file.resize(file.len() + left, 0);
                    continue;
                }
                let (data, after) = rest.split_at(rest.len().min(left - PART as usize));
                rest = after;
                let kind = match (is_first, rest.is_empty()) {
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, false) => 3,
                    (false, true) => 4,
                };
                file.extend(IEEE.checksum(&[&[kind], data].concat()).to_le_bytes());
                file.extend((data.len() as u16).to_le_bytes());
                file.push(kind);
                file.extend(data);
                is_first = false;
                if rest.is_empty() {
                    break;
                }
            }
        }
        file
    }

    fn read(framing: Framing, bytes: &[u8], offset: u64, budget: u64) -> (Vec<Vec<u8>>, Reached) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("writes");
        let mut records = Vec::new();
        let opened = attnscope_checkpoint::open_regular(file.path()).expect("opens");
        let end = bytes.len() as u64;
        let reached = framing.read(opened, offset, end, budget, &mut |record: &[u8]| {
            records.push(record.to_vec());
        });
        (records, reached.expect("reads"))
    }

    /// Records of all sizes about the ends of blocks, with the file of them.
    fn files() -> [(Framing, Vec<Vec<u8>>, Vec<u8>); 2] {
        let sizes = [0, 1, 32_700, 40, 32_768, 100_000, 5, 7];
        let records: Vec<Vec<u8>> = sizes.iter().map(|n| vec![*n as u8; *n]).collect();
        let events = records.iter().flat_map(|record| event_record(record));
        let events = events.collect();
        let wandb = wandb_file(&records);
        [
            (Framing::Events, records.clone(), events),
            (Framing::Wandb, records, wandb),
        ]
    }

    #[test]
    fn a_file_is_read_in_pieces_wherever_it_was_cut() {
        for (framing, records, file) in files() {
            assert_eq!(read(framing, &file, 0, u64::MAX).0, records);
            for cut in (0..file.len()).step_by(997).chain(0..20) {
                let (mut found, reached) = read(framing, &file[..cut], 0, u64::MAX);
                assert_eq!(reached.damage, None, "{framing:?} cut at {cut}");
                found.extend(read(framing, &file, reached.offset, u64::MAX).0);
                assert_eq!(found, records, "{framing:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_budget_ends_a_read_and_the_next_one_goes_on() {
        for (framing, records, file) in files() {
            let (mut found, mut offset, mut n_reads) = (Vec::new(), 0, 0);
            loop {
                let (more, reached) = read(framing, &file, offset, 1000);
                found.extend(more);
                offset = reached.offset;
                n_reads += 1;
                if !reached.has_more {
                    break;
                }
            }
            assert_eq!(found, records, "{framing:?}");
            assert!(n_reads > 3, "{framing:?}: {n_reads}");
        }
    }

    #[test]
    fn damage_is_told_and_the_rest_is_read() {
        for (framing, records, mut file) in files() {
            // In the data of the third record.
            file[20_000] ^= 1;
            let (found, reached) = read(framing, &file, 0, u64::MAX);
            assert!(reached.damage.is_some(), "{framing:?}");
            assert!(found.len() < records.len(), "{framing:?}");
            assert_eq!(found.last(), records.last(), "{framing:?}");
        }
    }

    #[test]
    fn hostile_lengths_are_no_lengths() {
        let good = event_record(b"good");
        for length in [u64::MAX, u64::MAX - 3, 1 << 62] {
            let length = length.to_le_bytes();
            let sum = masked(CASTAGNOLI.checksum(&length)).to_le_bytes();
            let file = [&good[..], &length, &sum, &[0; 64]].concat();
            let (found, reached) = read(Framing::Events, &file, 0, u64::MAX);
            // As far as can be told, it is still being written.
            assert_eq!((found.len(), reached.offset), (1, good.len() as u64));
        }
        let (found, reached) = read(Framing::Events, &[0xff; 100], 0, u64::MAX);
        assert!(found.is_empty() && reached.damage.is_some());
        for byte in [0, 0xff, 2] {
            let file = [&WANDB[..], &[0], &vec![byte; 70_000]].concat();
            let (found, reached) = read(Framing::Wandb, &file, 0, u64::MAX);
            assert!(found.is_empty() && reached.damage.is_some(), "{byte}");
        }
        let (_, reached) = read(Framing::Wandb, b"{\"a json file\":1}", 0, u64::MAX);
        assert!(reached.damage.is_some());
    }

    #[test]
    fn long_records_are_passed_over() {
        let long = event_record(&vec![1; LONGEST as usize + 1]);
        let file = [&long[..], &event_record(b"short")].concat();
        assert_eq!(read(Framing::Events, &file, 0, 100).0, [b"short".to_vec()]);
        let file = wandb_file(&[vec![1; 3 << 20], b"short".to_vec()]);
        let (found, reached) = read(Framing::Wandb, &file, 0, u64::MAX);
        assert_eq!(found, [b"short".to_vec()]);
        assert_eq!(reached.damage, None);
    }
}
