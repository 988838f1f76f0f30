//! Words and their rows in a table: a JSON object, or a pickled dict that is parsed without running it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::data_file::DataFile;
use crate::pytorch::pickled_numbers;

/// Limit on the bytes of a dictionary: some ten million words.
const LONGEST: usize = 1 << 28;

/// Words and their row numbers.
#[derive(Debug, Clone)]
pub struct Dictionary {
    path: PathBuf,
    rows: BTreeMap<String, usize>,
}

impl Dictionary {
    /// # Errors
    /// When the file cannot be read, is no dictionary of words and rows, would run code, or repeats a word.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of_file(&DataFile::open(path)?)
    }

    pub(super) fn of_file(file: &DataFile) -> Result<Self> {
        let path = file.path();
        if file.len() > LONGEST {
            let problem = format!("expected a dictionary of at most {LONGEST} bytes");
            return Err(Error::file(path, problem));
        }
        let data = file.read(0..file.len())?;
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let is_pickle = match ending.to_lowercase().as_str() {
            "json" => false,
            "pkl" | "pickle" | "p" => true,
            _ => data.trim_ascii_start().first() != Some(&b'{'),
        };
        let words = if is_pickle {
            pickled_numbers(&data)
        } else {
            of_json(&data)
        };
        let own = words.and_then(|words| Self::of(path, words));
        own.map_err(|problem| Error::file(path, problem))
    }

    /// # Errors
    /// One clause, when there is no word, a row is negative, or a word is repeated.
    pub(super) fn of(
        path: &Path,
        words: impl IntoIterator<Item = (String, i64)>,
    ) -> std::result::Result<Self, String> {
        let mut rows = BTreeMap::new();
        for (word, row) in words {
            let Ok(row) = usize::try_from(row) else {
                return Err(format!("{word:?}: expected a row from 0, found {row}"));
            };
            match rows.get(&word) {
                Some(first) => {
                    return Err(format!(
                        "{word:?} stands twice, with rows {first} and {row}"
                    ));
                }
                None => rows.insert(word, row),
            };
        }
        if rows.is_empty() {
            return Err("holds no words: expected a dictionary word → row".to_owned());
        }
        Ok(Self {
            path: path.to_path_buf(),
            rows,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn row(&self, word: &str) -> Option<usize> {
        self.rows.get(word).copied()
    }

    /// Finds a word whose row is outside the first `n_rows`.
    pub(super) fn beyond(&self, n_rows: usize) -> Option<(&str, usize)> {
        let mut all = self.rows.iter();
        let found = all.find(|(_, row)| **row >= n_rows);
        found.map(|(word, row)| (word.as_str(), *row))
    }
}

fn of_json(data: &[u8]) -> std::result::Result<Vec<(String, i64)>, String> {
    let mut json = serde_json::Deserializer::from_slice(data);
    let entries = json.deserialize_any(Entries);
    let entries = entries.and_then(|entries| json.end().map(|()| entries));
    let entries = entries.map_err(|e| format!("expected a JSON object word → row ({e})"))?;
    let row = |(word, value): (String, Value)| match value.as_i64() {
        Some(row) => Ok((word, row)),
        None => Err(format!("{word:?}: expected a whole number, found {value}")),
    };
    entries.into_iter().map(row).collect()
}

/// Visits the entries of an object one by one: reading it as a map would silently drop the first of two equal keys.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
