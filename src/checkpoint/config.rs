//! `config.json` as data, with overrides by the user and values derived from the weights.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use crate::{CONFIGURATION, read_text};

/// A parsed `config.json`, with overrides by the user and values derived from the weights.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub(super) path: PathBuf,
    pub(super) values: Map<String, Value>,
    /// Origins of keys that are not in the file.
    pub(super) origins: BTreeMap<String, Origin>,
    /// Knobs (settings that affect the computation) with a value that overrides the keys.
    pub(super) fixed: BTreeMap<String, (Value, Origin)>,
    is_absent: bool,
}

impl Config {
    /// # Errors
    /// When the file cannot be read or is not a JSON object.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, CONFIGURATION)?;
        Self::parse(path, &text)
    }

    /// # Errors
    /// When the text is not a JSON object.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let parsed = serde_json::from_str(text)
            .or_else(|refused| serde_json::from_str(&worded(text)).map_err(|_| refused));
        match parsed {
            Ok(Value::Object(values)) => Ok(Self::from_map(path, values)),
            Ok(_) => Err(Error::file(
                path,
                "expected a JSON object, found another JSON value",
            )),
            Err(e) => Err(Error::file(path, format!("is not valid JSON ({e})"))),
        }
    }

    /// Wraps a configuration that was converted from another format to Hugging Face's keys; `path` is used in messages.
    pub fn from_map(path: &Path, values: Map<String, Value>) -> Self {
        Self {
            path: path.to_path_buf(),
            values,
            ..Self::default()
        }
    }

    /// Creates an empty configuration; `path` is the file that messages blame.
    pub fn absent(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            is_absent: true,
            ..Self::default()
        }
    }

    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Sets a key that the file does not have.
    pub fn put(&mut self, key: &str, value: impl Into<Value>, origin: Origin) {
        self.values.insert(key.to_owned(), value.into());
        self.origins.insert(key.to_owned(), origin);
        self.is_absent = false;
    }

    /// Moves the value of a key to another key that is absent.
    pub fn rename(&mut self, from: &str, to: &str) {
        if self.values.contains_key(to) {
            return;
        }
        if let Some(value) = self.values.remove(from) {
            self.values.insert(to.to_owned(), value);
            self.origins
                .insert(to.to_owned(), Origin::Key(from.to_owned()));
        }
    }

    /// Sets a knob, overriding the key from which a family reads it.
    pub fn fix(&mut self, knob: &str, value: impl Into<Value>, origin: Origin) {
        self.fixed.insert(knob.to_owned(), (value.into(), origin));
    }

    /// Whether a knob is set independently of the keys.
    pub fn is_fixed(&self, knob: &str) -> bool {
        self.fixed.contains_key(knob)
    }

    pub fn into_values(self) -> Map<String, Value> {
        self.values
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text part of a multimodal configuration; of a model that thinks and talks, that of the part that thinks; of one
    /// that searches, that of the model inside.
    pub fn text_part(&self) -> Option<Self> {
        let thinks = || self.part("thinker_config")?.text_part();
        let searches = || self.part("vlm_config")?.text_part();
        let own = self.part("text_config");
        own.or_else(thinks).or_else(searches)
    }

    /// Returns the configuration in a nested object; `None` if there is no such object.
    pub fn part(&self, key: &str) -> Option<Self> {
        match self.values.get(key) {
            Some(Value::Object(values)) => Some(Self {
                values: values.clone(),
                ..self.clone()
            }),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }
}

/// Rewrites NaN and infinities, which JSON lacks but Python writes, to objects as transformers does:
/// `{"__float__": "NaN"}`.
fn worded(text: &str) -> String {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let mut worded = String::with_capacity(text.len());
    let (mut in_string, mut rest) = (false, text);
    while let Some(next) = rest.chars().next() {
        let found = WORDS.into_iter().find(|word| rest.starts_with(word));
        if let Some(word) = found.filter(|_| !in_string) {
            worded.push_str(&format!("{{\"__float__\": \"{word}\"}}"));
            rest = &rest[word.len()..];
            continue;
        }
        // An escaped quote does not end a string.
        let n = match next {
            '\\' if in_string => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            other => other.len_utf8(),
        };
        in_string ^= next == '"';
        worded.push_str(&rest[..n]);
        rest = &rest[n..];
    }
    worded
}

/// Origin of the value of a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A key of the configuration.
    Key(String),
    /// The family's default, because the key is absent; names the key that would change it.
    Default(String),
    /// Computed from other knobs; says how.
    Derived(String),
    /// Fixed for the family.
    Family,
    /// Set by the user.
    Set(SetBy),
}

/// Where the user set a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    CommandLine,
    /// In `attnscope.toml` beside the checkpoint.
    File,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "config {key}"),
            Self::Default(key) => write!(f, "default, no {key}"),
            Self::Derived(how) => write!(f, "from {how}"),
            Self::Family => f.write_str("fixed for this family"),
            Self::Set(SetBy::CommandLine) => f.write_str("set on the command line"),
            Self::Set(SetBy::File) => f.write_str("set in attnscope.toml"),
        }
    }
}

/// One setting of the computation, as read from the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    pub name: &'static str,
    pub value: String,
    pub origin: Origin,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nan_and_infinities_in_a_configuration_are_read() {
        let text = r#"{"limit": [0.0, Infinity], "low": -Infinity, "said": "NaN \" Infinity"}"#;
        let config = Config::parse(Path::new("config.json"), text).expect("is read");
        let infinite = json!([0.0, {"__float__": "Infinity"}]);
        assert_eq!(config.get("limit"), Some(&infinite));
        assert_eq!(config.get("low"), Some(&json!({"__float__": "-Infinity"})));
        assert_eq!(config.get("said"), Some(&json!("NaN \" Infinity")));
        let broken = Config::parse(Path::new("config.json"), "{\"limit\": Infinit}");
        assert!(broken.is_err());
    }
}
