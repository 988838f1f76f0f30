//! Statistics of checkpoints read earlier, in the user's cache directory, keyed by the weights and the request.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use attnscope_checkpoint::{DOCUMENT, read_regular};
use attnscope_checks::stats::STATISTICS;
use attnscope_report::record::Row;
use attnscope_spec::Stack;
use attnscope_system::signals::Temporary;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::fingerprint::Fingerprint;
use super::grid::{Grid, LayerShape};
use super::read::Reading;

/// First bytes of an entry; changes with the format of entries.
const MAGIC: &[u8] = b"attnscope history 1\n";

const ENDING: &str = "history";

/// How often at most an entry is marked as used.
const MARKED_EVERY: Duration = Duration::from_secs(24 * 3600);

const SUM: usize = 32;

/// The directory of entries, and the request: prompts, what-ifs and flags.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
    request: Vec<u8>,
    /// Most bytes of all entries together; the least recently used ones are removed first.
    most_bytes: u64,
}

/// An entry in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    /// Name of the checkpoint; empty for an entry that cannot be read.
    pub name: String,
    pub n_bytes: u64,
    pub used: Option<SystemTime>,
}

/// Header of an entry, before the numbers.
#[derive(Serialize, Deserialize)]
struct Head {
    key: String,
    name: String,
    model: String,
    /// Stack, layer and number of heads.
    layers: Vec<(u8, usize, usize)>,
    /// Prompt, number of tokens and number of rows.
    prompts: Vec<(String, u64, usize)>,
    n_statistics: usize,
}

const STACKS: [Stack; 4] = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];

/// Returns `$XDG_CACHE_HOME/attnscope` or `~/.cache/attnscope`; `None` if neither variable is set.
pub fn directory() -> Option<PathBuf> {
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = of("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| of("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("attnscope"))
}

impl Cache {
    /// Opens a cache for `request`: prompts, what-ifs and flags. The version of the program is added to it.
    pub fn new(directory: PathBuf, request: &[u8], most_bytes: u64) -> Self {
        let mut all = format!("{}\n", env!("CARGO_PKG_VERSION")).into_bytes();
        for statistic in STATISTICS {
            all.extend(statistic.id.as_bytes());
            all.push(b'\n');
        }
        all.extend(request);
        Self {
            directory,
            request: all,
            most_bytes,
        }
    }

    fn key(&self, fingerprint: &Fingerprint) -> Option<String> {
        let mut digest = Sha256::new();
        digest.update((self.request.len() as u64).to_le_bytes());
        digest.update(&self.request);
        digest.update(fingerprint.digest()?);
        Some(
            digest
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(key).with_extension(ENDING)
    }

    /// Looks up a checkpoint by its files. A damaged entry counts as missing. Name and step come from the caller: the files may
    /// have been moved.
    pub fn get(&self, fingerprint: &Fingerprint, name: &str, step: Option<u64>) -> Option<Reading> {
        let key = self.key(fingerprint)?;
        let path = self.path(&key);
        let bytes = read_regular(&path, DOCUMENT).ok()?;
        let reading = read(&bytes, &key, name, step);
        if reading.is_none() {
            ::log::debug!("{}: damaged, ignored", path.display());
        }
        mark_used(&path);
        reading
    }

    /// Stores a reading. Errors are ignored: a full disk must not end a run.
    pub fn put(&self, fingerprint: &Fingerprint, reading: &Reading) {
        if let Some(key) = self.key(fingerprint)
            && let Err(e) = self.write(&key, reading)
        {
            ::log::debug!("{}: cannot be written ({e})", self.path(&key).display());
        }
    }

    fn write(&self, key: &str, reading: &Reading) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let bytes = written(key, reading)?;
        let mut temporary = Temporary::new_in(&self.directory)?;
        temporary.as_file_mut().write_all(&bytes)?;
        temporary.persist(&self.path(key), true)
    }

    /// Removes the least recently used entries until the rest is within the limit.
    pub fn trim(&self) {
        trim(&self.directory, self.most_bytes);
    }
}

fn trim(directory: &Path, most: u64) {
    let mut entries = files(directory);
    entries.sort_by_key(|(_, _, used)| std::cmp::Reverse(*used));
    let mut total = 0;
    for (path, n_bytes, _) in entries {
        total += n_bytes;
        if total > most {
            let _ = fs::remove_file(path);
        }
    }
}

/// Lists the files of entries: path, size, and time of last use.
fn files(directory: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Ok(about) = entry.metadata()
        {
            files.push((path, about.len(), about.modified().ok()));
        }
    }
    files.sort();
    files
}

/// Lists all entries, most recently used first.
pub fn list(directory: &Path) -> Vec<Entry> {
    let mut entries: Vec<Entry> = files(directory)
        .into_iter()
        .map(|(path, n_bytes, used)| {
            let head = read_regular(&path, DOCUMENT)
                .ok()
                .and_then(|bytes| head(&bytes).map(|(head, _)| head));
            Entry {
                name: head.map_or(String::new(), |head| head.name),
                path,
                n_bytes,
                used,
            }
        })
        .collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
    entries
}

/// Removes all entries; returns their number and total size.
///
/// # Errors
/// When one cannot be removed.
pub fn clear(directory: &Path) -> io::Result<(usize, u64)> {
    let (mut n, mut total) = (0, 0);
    for (path, n_bytes, _) in files(directory) {
        fs::remove_file(path)?;
        n += 1;
        total += n_bytes;
    }
    Ok((n, total))
}

fn mark_used(path: &Path) {
    let now = SystemTime::now();
    let used = path.metadata().and_then(|about| about.modified());
    let is_old =
        used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > MARKED_EVERY));
    if is_old && let Ok(file) = fs::File::options().append(true).open(path) {
        let _ = file.set_modified(now);
    }
}

/// Serialises an entry: its header, one record per row, and a digest of both.
fn written(key: &str, reading: &Reading) -> io::Result<Vec<u8>> {
    let code = |stack: Stack| {
        STACKS
            .iter()
            .position(|other| *other == stack)
            .unwrap_or_default() as u8
    };
    let mut prompts: Vec<(String, u64, usize)> = Vec::new();
    for row in &reading.rows {
        match prompts.last_mut() {
            Some((prompt, _, n)) if *prompt == row.prompt => *n += 1,
            _ => prompts.push((row.prompt.clone(), row.n_tokens, 1)),
        }
    }
    let layers = reading.grid.layers().iter();
    let head = Head {
        key: key.to_owned(),
        name: reading
            .rows
            .first()
            .map_or(String::new(), |row| row.checkpoint.clone()),
        model: reading.model.clone(),
        layers: layers
            .map(|layer| (code(layer.stack), layer.layer_idx, layer.n_heads))
            .collect(),
        prompts,
        n_statistics: STATISTICS.len(),
    };
    let mut bytes = MAGIC.to_vec();
    serde_json::to_writer(&mut bytes, &head)?;
    bytes.push(b'\n');
    for row in &reading.rows {
        let place = row.place().unwrap_or_default();
        bytes.push(code(place.grid()));
        bytes.extend((row.layer as u32).to_le_bytes());
        let head_idx = row.head.map_or(u32::MAX, |head| head as u32);
        bytes.extend(head_idx.to_le_bytes());
        bytes.push(u8::from(row.loss.is_some()));
        bytes.extend(row.loss.unwrap_or(0.0).to_le_bytes());
        for value in &row.stats {
            bytes.push(u8::from(value.is_some()));
            bytes.extend(value.unwrap_or(0.0).to_le_bytes());
        }
    }
    let sum = Sha256::digest(&bytes);
    bytes.extend(sum);
    Ok(bytes)
}

/// Parses the header of an entry; returns it with the offset of the numbers.
fn head(bytes: &[u8]) -> Option<(Head, usize)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let head = serde_json::from_slice(&rest[..end]).ok()?;
    Some((head, MAGIC.len() + end + 1))
}

fn read(bytes: &[u8], key: &str, name: &str, step: Option<u64>) -> Option<Reading> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
    if Sha256::digest(content).as_slice() != sum {
        return None;
    }
    let (head, at) = head(content)?;
    if head.key != key || head.n_statistics != STATISTICS.len() {
        return None;
    }
    let mut layers = Vec::new();
    for (stack, layer_idx, n_heads) in head.layers {
        layers.push(LayerShape {
            stack: *STACKS.get(usize::from(stack))?,
            layer_idx,
            n_heads,
        });
    }
    let mut numbers = Numbers(&content[at..]);
    let mut rows = Vec::new();
    for (prompt, n_tokens, n_rows) in head.prompts {
        for _ in 0..n_rows {
            let stack = STACKS.get(usize::from(numbers.byte()?))?.label();
            let layer = u64::from(numbers.word()?);
            let head_idx = numbers.word()?;
            let loss = numbers.optional()?;
            let stats: Option<Vec<Option<f64>>> =
                STATISTICS.iter().map(|_| numbers.optional()).collect();
            rows.push(Row {
                checkpoint: name.to_owned(),
                step,
                prompt: prompt.clone(),
                n_tokens,
                loss,
                stack: stack.map(str::to_owned),
                layer,
                head: (head_idx != u32::MAX).then_some(u64::from(head_idx)),
                stats: stats?,
            });
        }
    }
    let mut reading = Reading::of_rows(Grid::new(layers), rows, head.model);
    reading.is_cached = true;
    Some(reading)
}

/// The bytes left to read.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn optional(&mut self) -> Option<Option<f64>> {
        let is_there = self.byte()? != 0;
        let value = self.take().map(f64::from_le_bytes)?;
        Some(is_there.then_some(value))
    }
}
