//! Reads a configuration key by key and records which keys were used, which were not, and the origin of each value.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::config::{Config, Knob, Origin};
use super::silent_keys::IN_EVERY_OBJECT;

/// Limit on sizes: larger values mean damage, not a model.
const LARGEST_SIZE: u64 = 1 << 26;

/// Limit on stated layers: each costs a description before any tensor is looked up.
const MOST_LAYERS: u64 = 4096;

/// Knobs for which transformers does not replace null by the default.
const NEVER_NULL: [&str; 3] = ["norm_eps", "logit_scale", "rotary_share"];

/// Formats a number as a person writes it: 1e-12, not eleven zeros.
fn short(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// Reader of a configuration that records which keys it read.
#[derive(Debug)]
pub struct Reader<'a> {
    config: &'a Config,
    knobs: Vec<Knob>,
    read: BTreeSet<String>,
    fixed_read: BTreeSet<String>,
    remarks: Vec<String>,
    /// Unread keys of nested objects, prefixed with the object's key.
    unread_inside: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(config: &'a Config) -> Self {
        Self {
            config,
            knobs: Vec::new(),
            read: BTreeSet::new(),
            fixed_read: BTreeSet::new(),
            remarks: Vec::new(),
            unread_inside: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.config.path
    }

    /// Returns the nested configuration under a key, to be read by a reader of its own; empty if there is none.
    pub fn part(&self, key: &str) -> Config {
        let part = self.config.part(key);
        part.unwrap_or_else(|| Config::from_map(&self.config.path, serde_json::Map::new()))
    }

    /// Returns a key's value unless it is absent or null, and records the key as read.
    pub fn value(&mut self, key: &str) -> Option<&'a Value> {
        self.read.insert(key.to_owned());
        self.config.values.get(key).filter(|v| !v.is_null())
    }

    /// Whether the configuration has a key, whoever stated it.
    pub fn is_stated(&self, key: &str) -> bool {
        self.config.values.get(key).is_some_and(|v| !v.is_null())
    }

    /// Whether the user set a key.
    pub fn is_set(&self, key: &str) -> bool {
        matches!(self.config.origins.get(key), Some(Origin::Set(_)))
    }

    /// Whether a key exists and is null.
    pub fn is_null(&self, key: &str) -> bool {
        self.config.values.get(key).is_some_and(Value::is_null)
    }

    /// Returns the overriding value of a knob, or else the value of its key, with its origin.
    fn given(&mut self, knob: &str, key: &str) -> Option<(&'a Value, Origin)> {
        let stored = self.value(key);
        if let Some((value, origin)) = self.config.fixed.get(knob) {
            self.fixed_read.insert(knob.to_owned());
            return Some((value, origin.clone()));
        }
        let origin = self.config.origins.get(key).cloned();
        stored.map(|value| (value, origin.unwrap_or_else(|| Origin::Key(key.to_owned()))))
    }

    /// Removes the records of some knobs.
    pub fn forget(&mut self, names: &[&str]) {
        self.knobs.retain(|knob| !names.contains(&knob.name));
    }

    /// Lists knobs with an overriding value that no family read.
    pub fn fixed_unread(&self) -> Vec<&'a str> {
        let all = self.config.fixed.keys().map(String::as_str);
        all.filter(|knob| !self.fixed_read.contains(*knob))
            .collect()
    }

    /// Reads a required positive size.
    ///
    /// # Errors
    /// When the key is absent, or is no whole number, zero or absurdly large.
    pub fn size(&mut self, knob: &'static str, key: &str) -> Result<usize> {
        self.needed_size(knob, key, LARGEST_SIZE)
    }

    /// Reads the required number of layers.
    ///
    /// # Errors
    /// As for [`Reader::size`].
    pub fn layers(&mut self, key: &str) -> Result<usize> {
        self.needed_size("n_layers", key, MOST_LAYERS)
    }

    fn needed_size(&mut self, knob: &'static str, key: &str, most: u64) -> Result<usize> {
        match self.given(knob, key) {
            Some(given) => self.checked_size(knob, key, given, most),
            None => {
                let problem = "missing, expected a positive whole number";
                Err(Error::config(self.path(), key, problem))
            }
        }
    }

    /// Reads a positive size, or returns the default if it is absent or null.
    ///
    /// # Errors
    /// When the key is present but not a sensible size.
    pub fn size_or(
        &mut self,
        knob: &'static str,
        key: &str,
        default: usize,
        origin: Origin,
    ) -> Result<usize> {
        match self.given(knob, key) {
            Some(given) => self.checked_size(knob, key, given, LARGEST_SIZE),
            None => {
                self.note(knob, default, origin);
                Ok(default)
            }
        }
    }

    fn checked_size(
        &mut self,
        knob: &'static str,
        key: &str,
        (value, origin): (&Value, Origin),
        most: u64,
    ) -> Result<usize> {
        // Some configurations state a size once for each layer.
        let list = value.as_array().filter(|list| {
            let first = list.first();
            list.iter().all(|entry| Some(entry) == first)
        });
        let stated = list.and_then(|list| list.first()).unwrap_or(value);
        match stated.as_u64() {
            Some(size) if (1..=most).contains(&size) => {
                self.note(knob, size, origin);
                Ok(size as usize)
            }
            _ => {
                let problem = format!("expected a whole number from 1 to {most}, found {value}");
                Err(Error::config(self.path(), key, problem))
            }
        }
    }

    /// Reads a finite number, or returns the default if it is absent.
    ///
    /// # Errors
    /// When the key is present but not a number.
    pub fn number_or(&mut self, knob: &'static str, key: &str, default: f64) -> Result<f64> {
        // In transformers, null for these keys makes a computation fail instead of selecting the default.
        let is_null = self.config.values.get(key).is_some_and(Value::is_null);
        if is_null && NEVER_NULL.contains(&knob) {
            let problem = "expected a number, found null";
            return Err(Error::config(self.path(), key, problem));
        }
        match self.given(knob, key) {
            None => {
                self.note(knob, short(default), Origin::Default(key.to_owned()));
                Ok(default)
            }
            Some((value, origin)) => match value.as_f64().filter(|v| v.is_finite()) {
                Some(number) if knob == "norm_eps" && number < 0.0 => {
                    let problem = format!("expected a number from 0, found {number}");
                    Err(Error::config(self.path(), key, problem))
                }
                Some(number) => {
                    self.note(knob, short(number), origin);
                    Ok(number)
                }
                None => Err(Error::config(
                    self.path(),
                    key,
                    format!("expected a number, found {value}"),
                )),
            },
        }
    }

    /// Reads a truth value, or returns the default if it is absent.
    ///
    /// # Errors
    /// When the key is present but not a truth value.
    pub fn flag_or(&mut self, knob: &'static str, key: &str, default: bool) -> Result<bool> {
        let is_null = self.config.values.get(key).is_some_and(Value::is_null);
        let (flag, origin) = match self.given(knob, key) {
            // Python treats null as false.
            None if is_null => (false, Origin::Key(key.to_owned())),
            None => (default, Origin::Default(key.to_owned())),
            Some((Value::Bool(flag), origin)) => (*flag, origin),
            Some((value, _)) => {
                return Err(Error::config(
                    self.path(),
                    key,
                    format!("expected true or false, found {value}"),
                ));
            }
        };
        self.note(knob, flag, origin);
        Ok(flag)
    }

    /// Reads a word, or returns the default if it is absent.
    ///
    /// # Errors
    /// When the key is present but not a string.
    pub fn word_or(&mut self, knob: &'static str, key: &str, default: &str) -> Result<String> {
        let (word, origin) = match self.given(knob, key) {
            None => (default.to_owned(), Origin::Default(key.to_owned())),
            Some((Value::String(word), origin)) => (word.clone(), origin),
            Some((value, _)) => {
                return Err(Error::config(
                    self.path(),
                    key,
                    format!("expected a string, found {value}"),
                ));
            }
        };
        self.note(knob, &word, origin);
        Ok(word)
    }

    /// Reads a number, with a default if it is absent; null means none.
    ///
    /// # Errors
    /// When the key is present but not a number.
    pub fn number_or_none(
        &mut self,
        knob: &'static str,
        key: &str,
        default: Option<f64>,
    ) -> Result<Option<f64>> {
        let is_stated = self.config.values.contains_key(key);
        match (self.value(key), is_stated, default) {
            (Some(_), ..) => self.number_or(knob, key, 0.0).map(Some),
            (None, false, Some(default)) => self.number_or(knob, key, default).map(Some),
            (None, true, _) => {
                self.note(knob, "none", Origin::Key(key.to_owned()));
                Ok(None)
            }
            (None, false, None) => {
                self.note(knob, "none", Origin::Default(key.to_owned()));
                Ok(None)
            }
        }
    }

    /// Reads a bound above 0; absent or null means none.
    ///
    /// # Errors
    /// When the key is present but not such a number.
    pub fn bound_or_none(&mut self, knob: &'static str, key: &str) -> Result<Option<f64>> {
        let bound = self.number_or_none(knob, key, None)?;
        match bound.filter(|bound| *bound <= 0.0) {
            Some(found) => {
                let problem = format!("expected a number above 0, found {found}");
                Err(Error::config(self.path(), key, problem))
            }
            None => Ok(bound),
        }
    }

    /// Reads a positive size under the first of two keys that is present.
    ///
    /// # Errors
    /// As for [`Reader::size`].
    pub fn either_size(&mut self, knob: &'static str, keys: [&str; 2]) -> Result<usize> {
        let [first, second] = keys;
        let has_second = self.value(second).is_some();
        let key = if self.value(first).is_none() && has_second {
            second
        } else {
            first
        };
        self.size(knob, key)
    }

    /// Reads a switch without recording a knob; absent means off.
    ///
    /// # Errors
    /// When the key is present but not a truth value.
    pub fn flag_quietly(&mut self, key: &str) -> Result<bool> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => {
                let problem = format!("expected true or false, found {value}");
                Err(Error::config(self.path(), key, problem))
            }
        }
    }

    /// Whether a knob is set independently of the keys.
    pub fn is_fixed(&self, knob: &str) -> bool {
        self.config.fixed.contains_key(knob)
    }

    /// Returns the word that a knob was set to, without reading any key.
    pub fn word_if_set(&mut self, knob: &'static str) -> Option<String> {
        let (value, origin) = self.config.fixed.get(knob)?;
        self.fixed_read.insert(knob.to_owned());
        let word = value.as_str()?;
        self.note(knob, word, origin.clone());
        Some(word.to_owned())
    }

    /// Whether a value is this word, which is allowed instead of a number.
    pub fn is_word(&mut self, knob: &str, key: &str, word: &str) -> bool {
        let given = self.given(knob, key);
        given.is_some_and(|(value, _)| value.as_str() == Some(word))
    }

    /// Reads a token id of the vocabulary, if there is one.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn token(&mut self, knob: &'static str, key: &str, d_vocab: usize) -> Result<Option<u32>> {
        let Some((value, origin)) = self.given(knob, key) else {
            return Ok(None);
        };
        let Some(id) = value.as_u64().filter(|id| *id < d_vocab as u64) else {
            let problem = format!("expected a token id below {d_vocab}, found {value}");
            return Err(Error::config(self.path(), key, problem));
        };
        self.note(knob, id, origin);
        Ok(Some(id as u32))
    }

    /// Reads one token id or a list of ids; invalid ids are ignored.
    pub fn tokens(&mut self, knob: &'static str, key: &str) -> Vec<u32> {
        let Some((value, origin)) = self.given(knob, key) else {
            return Vec::new();
        };
        self.note(knob, value, origin);
        let list = value
            .as_array()
            .map_or(std::slice::from_ref(value), |list| list);
        let ids = list.iter().filter_map(Value::as_u64);
        ids.filter_map(|id| u32::try_from(id).ok()).collect()
    }

    /// Reads a whole number including zero, or returns the default if it is absent or null.
    ///
    /// # Errors
    /// When the key is present but not a sensible whole number.
    pub fn count_or(&mut self, knob: &'static str, key: &str, default: usize) -> Result<usize> {
        match self.value(key) {
            None => {
                self.note(knob, default, Origin::Default(key.to_owned()));
                Ok(default)
            }
            Some(value) if value.as_u64() == Some(0) => {
                self.note(knob, 0, Origin::Key(key.to_owned()));
                Ok(0)
            }
            Some(value) => {
                let origin = Origin::Key(key.to_owned());
                self.checked_size(knob, key, (value, origin), LARGEST_SIZE)
            }
        }
    }

    /// Reads a list with one word per layer, if there is one.
    ///
    /// # Errors
    /// When it is not such a list.
    pub fn words_by_layer(&mut self, key: &str, n_layers: usize) -> Result<Option<Vec<String>>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let words: Option<Vec<String>> = value.as_array().and_then(|list| {
            let word = |v: &Value| v.as_str().map(str::to_owned);
            list.iter().map(word).collect()
        });
        match words {
            Some(words) if words.len() == n_layers => Ok(Some(words)),
            _ => {
                let problem = format!("expected a list of {n_layers} words, one per layer");
                Err(Error::config(self.path(), key, problem))
            }
        }
    }

    /// Reads a list of whole numbers, if there is one.
    ///
    /// # Errors
    /// When it is not such a list.
    pub fn numbers(&mut self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let list = value.as_array();
        let numbers: Option<Vec<u64>> =
            list.and_then(|list| list.iter().map(Value::as_u64).collect());
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => {
                let problem = format!("expected a list of whole numbers, found {value}");
                Err(Error::config(self.path(), key, problem))
            }
        }
    }

    /// Merges the records of a reader of a nested object.
    pub fn absorb(&mut self, key: &str, part: Reader<'_>) {
        self.read.insert(key.to_owned());
        self.fixed_read.extend(part.fixed_read.iter().cloned());
        part.remarks
            .iter()
            .for_each(|said| self.remark(said.clone()));
        let (knobs, unread) = part.finish();
        for knob in knobs {
            let is_known = self.knobs.iter().any(|own| {
                (own.name, &own.value, &own.origin) == (knob.name, &knob.value, &knob.origin)
            });
            if !is_known {
                self.knobs.push(knob);
            }
        }
        let said = unread
            .iter()
            .filter(|name| !IN_EVERY_OBJECT.contains(&name.as_str()));
        self.unread_inside
            .extend(said.map(|name| format!("{key}.{name}")));
    }

    /// Records a fact that has no key of its own.
    pub fn note(&mut self, name: &'static str, value: impl fmt::Display, origin: Origin) {
        self.knobs.push(Knob {
            name,
            value: value.to_string(),
            origin,
        });
    }

    /// Adds a remark for the user on how the configuration was read.
    pub fn remark(&mut self, said: String) {
        if !self.remarks.contains(&said) {
            self.remarks.push(said);
        }
    }

    /// Returns the remarks.
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// Returns the knobs that were read and the keys that were not, in the order of the file.
    pub fn finish(self) -> (Vec<Knob>, Vec<String>) {
        let unread = self
            .config
            .values
            .keys()
            .filter(|k| !self.read.contains(*k))
            .cloned()
            .chain(self.unread_inside)
            .collect();
        (self.knobs, unread)
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
