//! A configuration read key by key with a memory: which keys were used, which were not, and where each value came from.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::config::{Config, Knob, Origin};
use super::silent_keys::IN_EVERY_OBJECT;

/// No dimension of a model that a person can hold exceeds this; larger values are damage, not models.
const LARGEST_SIZE: u64 = 1 << 26;

/// The most layers that a configuration may state: each costs a description before any tensor is looked for.
const MOST_LAYERS: u64 = 4096;

/// Knobs of which transformers does not take null for the default.
const NEVER_NULL: [&str; 3] = ["norm_eps", "logit_scale", "rotary_share"];

/// A number as a person writes it: 1e-12, not eleven zeros.
fn short(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// Reads a configuration once, from top to bottom, and remembers what it read.
#[derive(Debug)]
pub struct Reader<'a> {
    config: &'a Config,
    knobs: Vec<Knob>,
    read: BTreeSet<String>,
    fixed_read: BTreeSet<String>,
    remarks: Vec<String>,
    /// Keys inside objects of the configuration that were never read, with the object's own key.
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

    /// The configuration inside a key, to be read by a reader of its own; an empty one where the key holds none.
    pub fn part(&self, key: &str) -> Config {
        let part = self.config.part(key);
        part.unwrap_or_else(|| Config::from_map(&self.config.path, serde_json::Map::new()))
    }

    /// A key's value, if it is there and not null; the key counts as read either way.
    pub fn value(&mut self, key: &str) -> Option<&'a Value> {
        self.read.insert(key.to_owned());
        self.config.values.get(key).filter(|v| !v.is_null())
    }

    /// Whether a person gave the value of a key.
    pub fn is_set(&self, key: &str) -> bool {
        matches!(self.config.origins.get(key), Some(Origin::Set(_)))
    }

    /// Whether a key is there and is null.
    pub fn is_null(&self, key: &str) -> bool {
        self.config.values.get(key).is_some_and(Value::is_null)
    }

    /// What a knob is fixed to, or else the value of its key; with where it comes from.
    fn given(&mut self, knob: &str, key: &str) -> Option<(&'a Value, Origin)> {
        let stored = self.value(key);
        if let Some((value, origin)) = self.config.fixed.get(knob) {
            self.fixed_read.insert(knob.to_owned());
            return Some((value, origin.clone()));
        }
        let origin = self.config.origins.get(key).cloned();
        stored.map(|value| (value, origin.unwrap_or_else(|| Origin::Key(key.to_owned()))))
    }

    /// Takes back what was noted of some knobs.
    pub fn forget(&mut self, names: &[&str]) {
        self.knobs.retain(|knob| !names.contains(&knob.name));
    }

    /// Fixed knobs that nobody asked for.
    pub fn fixed_unread(&self) -> Vec<&'a str> {
        let all = self.config.fixed.keys().map(String::as_str);
        all.filter(|knob| !self.fixed_read.contains(*knob))
            .collect()
    }

    /// A positive size that must be given.
    ///
    /// # Errors
    /// When the key is absent, no whole number, zero, or absurdly large.
    pub fn size(&mut self, knob: &'static str, key: &str) -> Result<usize> {
        self.needed_size(knob, key, LARGEST_SIZE)
    }

    /// A number of layers that must be given.
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

    /// A positive size with a value to use when the key is absent or null.
    ///
    /// # Errors
    /// When the key is there and its value is not a sensible size.
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
        match value.as_u64() {
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

    /// A finite number, or the default when absent.
    ///
    /// # Errors
    /// When the key is there and is not a number.
    pub fn number_or(&mut self, knob: &'static str, key: &str, default: f64) -> Result<f64> {
        // Half of these keys stand in a division or under a root, where no value is not the default but a fault.
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

    /// A truth value, or the default when absent.
    ///
    /// # Errors
    /// When the key is there and is not a truth value.
    pub fn flag_or(&mut self, knob: &'static str, key: &str, default: bool) -> Result<bool> {
        let is_null = self.config.values.get(key).is_some_and(Value::is_null);
        let (flag, origin) = match self.given(knob, key) {
            // Where a key says nothing, Python takes it for false.
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

    /// A word, or the default when absent.
    ///
    /// # Errors
    /// When the key is there and is not a string.
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

    /// A number where absent means a default and null means none.
    ///
    /// # Errors
    /// When the key is there and is not a number.
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

    /// A bound on values, above 0, where absent and null mean none.
    ///
    /// # Errors
    /// When the key is there and is no such number.
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

    /// A positive size under the first of two names that is there.
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

    /// Whether a switch is on; it is not a knob of its own.
    ///
    /// # Errors
    /// When the key is there and is not a truth value.
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

    /// Whether a person gave the value of a knob.
    pub fn is_fixed(&self, knob: &str) -> bool {
        self.config.fixed.contains_key(knob)
    }

    /// A word that a person gave for a knob; what a file says of it is not asked.
    pub fn word_if_set(&mut self, knob: &'static str) -> Option<String> {
        let (value, origin) = self.config.fixed.get(knob)?;
        self.fixed_read.insert(knob.to_owned());
        let word = value.as_str()?;
        self.note(knob, word, origin.clone());
        Some(word.to_owned())
    }

    /// Whether a value is this word, which may stand in the place of a number.
    pub fn is_word(&mut self, knob: &str, key: &str, word: &str) -> bool {
        let given = self.given(knob, key);
        given.is_some_and(|(value, _)| value.as_str() == Some(word))
    }

    /// A token of a vocabulary, when one is given.
    ///
    /// # Errors
    /// When something else is.
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

    /// Tokens, as one id or a list of them; ids that are none never come up.
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

    /// A whole number, zero included, or the default when absent or null.
    ///
    /// # Errors
    /// When the key is there and is not a whole number of a sensible size.
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

    /// A list of one word per layer, when it is there.
    ///
    /// # Errors
    /// When it is no such list.
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

    /// A list of whole numbers, when it is there.
    ///
    /// # Errors
    /// When it is no such list.
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

    /// Takes over what was read of an object inside this configuration.
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

    /// Records a fact that was not read from a key of its own.
    pub fn note(&mut self, name: &'static str, value: impl fmt::Display, origin: Origin) {
        self.knobs.push(Knob {
            name,
            value: value.to_string(),
            origin,
        });
    }

    /// Keeps a sentence that a person should hear of how the configuration was read.
    pub fn remark(&mut self, said: String) {
        if !self.remarks.contains(&said) {
            self.remarks.push(said);
        }
    }

    /// The sentences that were kept.
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// What was read, and the keys that never were, in the order of the file.
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
