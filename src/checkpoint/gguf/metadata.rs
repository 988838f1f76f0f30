//! Typed access to metadata by key (numbers, words, lists of numbers), which records the keys that were read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use attnscope_compute::error::{Error, Result};

use super::value::{Cursor, Kind, List, Value};

/// The metadata of one file.
#[derive(Debug)]
pub(super) struct Metadata<'a> {
    pub path: &'a Path,
    data: &'a [u8],
    entries: &'a BTreeMap<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(
        path: &'a Path,
        data: &'a [u8],
        entries: &'a BTreeMap<String, Value>,
    ) -> Self {
        Self {
            path,
            data,
            entries,
            read: RefCell::default(),
        }
    }

    /// Returns a value as it is stored, and records the key as read.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.entries.get(key)
    }

    /// Returns keys that begin with `prefix` and were never read, with their values if these are short.
    pub(super) fn unread(&self, prefix: &str) -> Vec<(&'a str, serde_json::Value)> {
        let read = self.read.borrow();
        self.entries
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && !read.contains(*key))
            .map(|(key, value)| (key.as_str(), self.in_json(value)))
            .collect()
    }

    fn in_json(&self, value: &Value) -> serde_json::Value {
        match value {
            Value::Unsigned(n) => (*n).into(),
            Value::Signed(n) => (*n).into(),
            Value::F32(n) => as_written(*n).into(),
            Value::F64(n) => (*n).into(),
            Value::Bool(b) => (*b).into(),
            Value::Text(place) => self.lossy(place.clone()).into(),
            Value::List(list) => format!("{} values", list.len).into(),
        }
    }

    fn lossy(&self, place: std::ops::Range<usize>) -> String {
        String::from_utf8_lossy(&self.data[place]).into_owned()
    }

    fn refuse<T>(&self, key: &str, expected: &str, found: &Value) -> Result<T> {
        let problem = format!("expected {expected}, found {}", self.in_json(found));
        Err(Error::config(self.path, key, problem))
    }

    /// Returns a whole number if the key exists. A list of equal numbers, one per layer, counts as that number.
    pub(super) fn whole(&self, key: &str) -> Result<Option<u64>> {
        let whole = |value: &Value| match value {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        };
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        if let Value::List(list) = value {
            let all: Option<Vec<u64>> = self.elements(list)?.iter().map(whole).collect();
            return match all.as_deref() {
                Some([first, rest @ ..]) if rest.iter().all(|n| n == first) => Ok(Some(*first)),
                _ => self.refuse(key, "the same whole number for every layer", value),
            };
        }
        match whole(value) {
            Some(n) => Ok(Some(n)),
            None => self.refuse(key, "a whole number", value),
        }
    }

    /// Returns a required whole number from 1 to `most`.
    pub(super) fn size(&self, key: &str, most: u64) -> Result<u64> {
        match self.whole(key)? {
            Some(size) if (1..=most).contains(&size) => Ok(size),
            found => {
                let found = found.map_or("nothing".to_owned(), |n| n.to_string());
                let problem = format!("expected a whole number from 1 to {most}, found {found}");
                Err(Error::config(self.path, key, problem))
            }
        }
    }

    /// Returns a whole number, or the largest of a list of them: from 1 to `most`.
    pub(super) fn largest(&self, key: &str, most: u64) -> Result<u64> {
        let Some(Value::List(_)) = self.get(key) else {
            return self.size(key, most);
        };
        let largest = self.wholes(key)?.into_iter().max();
        largest
            .filter(|size| (1..=most).contains(size))
            .ok_or_else(|| {
                let problem = format!("expected a whole number from 1 to {most} in the list");
                Error::config(self.path, key, problem)
            })
    }

    /// Returns a list of whole numbers, empty if the key does not exist.
    pub(super) fn wholes(&self, key: &str) -> Result<Vec<u64>> {
        let Some(list) = self.list(key)? else {
            return Ok(Vec::new());
        };
        let whole = |value: Value| match value {
            Value::Unsigned(n) => Some(n),
            Value::Signed(n) => u64::try_from(n).ok(),
            _ => None,
        };
        let all: Option<Vec<u64>> = self.elements(list)?.into_iter().map(whole).collect();
        all.ok_or_else(|| Error::config(self.path, key, "expected a list of whole numbers"))
    }

    /// Returns a finite number if the key exists.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = match value {
            Value::Unsigned(n) => Some(*n as f64),
            Value::Signed(n) => Some(*n as f64),
            Value::F32(n) => Some(as_written(*n)),
            Value::F64(n) => Some(*n),
            _ => None,
        };
        match number.filter(|n| n.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => self.refuse(key, "a finite number", value),
        }
    }

    /// Returns a truth value if the key exists.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => self.refuse(key, "true or false", other),
        }
    }

    /// Returns a text if the key exists.
    pub(super) fn word(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(place)) => Ok(Some(self.lossy(place.clone()))),
            Some(other) => self.refuse(key, "text", other),
        }
    }

    /// Returns a list if the key exists.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'a List>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::List(list)) => Ok(Some(list)),
            Some(other) => self.refuse(key, "a list", other),
        }
    }

    /// Returns the elements of a list, which the header's reader has already checked.
    pub(super) fn elements(&self, list: &List) -> Result<Vec<Value>> {
        elements(self.path, self.data, list)
    }
}

/// Parses the elements of a list in `data`.
pub(super) fn elements(path: &Path, data: &[u8], list: &List) -> Result<Vec<Value>> {
    let mut cursor = Cursor::new(
        path,
        &data[..list.bytes.end],
        list.bytes.end,
        list.bytes.start,
    );
    if list.kind == Kind::List {
        return Err(Error::file(
            path,
            "a list of lists where numbers or texts were expected",
        ));
    }
    (0..list.len)
        .map(|_| cursor.value(list.kind, "an element of a list"))
        .collect()
}

/// Returns the number whose shortest decimal gives these bits, as a person may have written it: 1e-6.
fn as_written(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}
