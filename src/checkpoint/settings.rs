//! The user's settings for a checkpoint, from `attnscope.toml` beside it and the command line; kept as text, in order.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::config::SetBy;
use super::tensors::Tensors;
use crate::counted::counted;
use crate::read_text;

/// Name of the settings file.
pub const FILE: &str = "attnscope.toml";

/// Limit on the bytes of the file: a longer one is not a list of settings.
const LONGEST: usize = 1 << 20;

/// Limit on rename rules: each is tried on each tensor, and a model needs a dozen.
const MOST_RENAMES: usize = 1000;

/// Placeholder for the number of a layer in a tensor's name.
const LAYER: &str = "{layer}";

/// One setting of the user, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    pub value: String,
    pub by: SetBy,
    /// Its place, for messages.
    pub place: String,
}

/// All settings of the user (later ones win), and rules for renaming tensors.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub values: Vec<Setting>,
    /// The tensor of each part of the model, if the file describes it completely.
    pub tensors: Option<Map<String, Json>>,
    /// The tokenizer that the file states: `bytes`, or a file beside it.
    pub tokenizer: Option<String>,
    /// How the file was guessed, in a sentence.
    guessed: Option<String>,
    renames: Vec<Rename>,
    file: PathBuf,
}

#[derive(Debug, Clone)]
struct Rename {
    from: String,
    to: String,
}

impl Settings {
    /// Reads the settings file of a directory, if there is one, and adds those of the command line.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, or contains anything but settings.
    pub fn read(directory: &Path, from_command_line: &[(String, String)]) -> Result<Self> {
        let path = directory.join(FILE);
        let mut settings = if path.is_file() {
            let text = read_text(&path, LONGEST)?;
            Self::parse(&path, &text)?
        } else {
            Self::default()
        };
        settings.add(from_command_line);
        Ok(settings)
    }

    /// Describes in a sentence what the settings file changes; `None` if nothing.
    pub fn of_file(&self) -> Option<String> {
        let from_file = self.values.iter().filter(|set| set.by == SetBy::File);
        let set: Vec<String> = from_file
            .map(|set| format!("{} = {}", set.key, set.value))
            .collect();
        let mut does = Vec::new();
        if !set.is_empty() {
            does.push(format!("sets {}", set.join(", ")));
        }
        if let Some(tensors) = &self.tensors {
            let parts = counted(tensors.len(), "part");
            does.push(format!("describes the model by {parts}"));
        }
        match self.renames.len() {
            0 => {}
            1 => does.push("renames tensors by a rule".to_owned()),
            n => does.push(format!("renames tensors by {n} rules")),
        }
        let guessed = self.guessed.as_ref();
        let guessed = guessed.map_or(String::new(), |how| format!(" is a guess ({how}): it"));
        (!does.is_empty()).then(|| {
            format!(
                "{FILE} beside the checkpoint{guessed} {}; --no-settings ignores it",
                does.join(" and ")
            )
        })
    }

    /// Builds settings from the command line only.
    pub fn of_command_line(given: &[(String, String)]) -> Self {
        let mut settings = Self::default();
        settings.add(given);
        settings
    }

    fn add(&mut self, from_command_line: &[(String, String)]) {
        for (key, value) in from_command_line {
            self.values.push(Setting {
                key: key.clone(),
                value: value.clone(),
                by: SetBy::CommandLine,
                place: format!("--set {key}={value}"),
            });
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let parsed: std::result::Result<Table, toml::de::Error> = toml::from_str(text);
        let table = parsed.map_err(|e| {
            let at = e.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            let reason: Vec<&str> = e.message().split_whitespace().collect();
            let problem = format!("line {line}: is not valid TOML ({})", reason.join(" "));
            Error::file(path, problem)
        })?;
        let mut settings = Self {
            file: path.to_path_buf(),
            ..Self::default()
        };
        for (part, value) in &table {
            let line = line_of(text, part);
            let entries = match (part.as_str(), value) {
                ("set" | "rename", Value::Table(entries)) => entries,
                ("tensors", Value::Table(entries)) => {
                    settings.tensors = serde_json::to_value(entries)
                        .ok()
                        .and_then(|value| value.as_object().cloned());
                    continue;
                }
                ("tokenizer", Value::String(word)) => {
                    settings.tokenizer = Some(word.clone());
                    continue;
                }
                ("guessed", Value::String(how)) => {
                    settings.guessed = Some(how.split_whitespace().collect::<Vec<_>>().join(" "));
                    continue;
                }
                _ => {
                    let problem =
                        format!("line {line}: expected [set], [rename] or [tensors], found {part}");
                    return Err(Error::file(path, problem));
                }
            };
            for (key, value) in entries {
                let line = line_of(text, key);
                let place = format!("{}: line {line}: {key}", path.display());
                let refused = |expected: &str| {
                    let problem = format!("expected {expected}, found {}", value.type_str());
                    Error::Setting(format!("{place}: {problem}"))
                };
                if part == "set" {
                    let value = plain(value).ok_or_else(|| refused("one value"))?;
                    settings.values.push(Setting {
                        key: key.clone(),
                        place: format!("{place} = {value}"),
                        value,
                        by: SetBy::File,
                    });
                } else {
                    if settings.renames.len() == MOST_RENAMES {
                        let problem = format!("expected at most {MOST_RENAMES} names");
                        return Err(Error::Setting(format!("{place}: {problem}")));
                    }
                    let to = value.as_str().ok_or_else(|| refused("a tensor's name"))?;
                    let holes = [key, to].map(|name| name.matches(LAYER).count());
                    if holes[0] != holes[1] || holes[0] > 1 {
                        let problem = format!("expected {LAYER} once in both names, or in neither");
                        return Err(Error::Setting(format!("{place}: {problem}")));
                    }
                    settings.renames.push(Rename {
                        from: key.clone(),
                        to: to.to_owned(),
                    });
                }
            }
        }
        Ok(settings)
    }

    /// Renames tensors by the rules of the file.
    ///
    /// # Errors
    /// When a rule matches no tensor, or two tensors would get the same name.
    pub fn rename(&self, tensors: &mut Tensors) -> Result<()> {
        for rename in &self.renames {
            if !tensors.iter().any(|(name, _)| rename.apply(name).is_some()) {
                let first: Vec<&str> = tensors.iter().map(|(name, _)| name).take(3).collect();
                let found = first.join(", ");
                let problem = format!("no tensor has this name; found {found}, …");
                return Err(Error::config(&self.file, &rename.from, problem));
            }
        }
        if self.renames.is_empty() {
            return Ok(());
        }
        tensors.rename(|name| self.renames.iter().find_map(|rename| rename.apply(name)))
    }
}

impl Rename {
    fn apply(&self, name: &str) -> Option<String> {
        let Some((before, after)) = self.from.split_once(LAYER) else {
            return (self.from == name).then(|| self.to.clone());
        };
        let layer = name.strip_prefix(before)?.strip_suffix(after)?;
        let is_number = !layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| self.to.replace(LAYER, layer))
    }
}

/// Formats a value as on the command line.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Finds the line of a key: the first line that begins with it, or else line 1.
fn line_of(text: &str, key: &str) -> usize {
    text.lines()
        .position(|line| {
            let line = line.split('#').next().unwrap_or(line);
            line.trim_start_matches(['[', ' ', '\t', '"', '\''])
                .starts_with(key)
        })
        .map_or(1, |idx| idx + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(Path::new("attnscope.toml"), text)
    }

    #[test]
    fn a_rename_rule_keeps_the_layer_number() {
        let rename = Rename {
            from: "a.{layer}.w".to_owned(),
            to: "x{layer}y".to_owned(),
        };
        assert_eq!(rename.apply("a.12.w").as_deref(), Some("x12y"));
        for other in ["a.12.b", "a..w", "a.1x.w", "b.1.w", "a.w"] {
            assert_eq!(rename.apply(other), None, "{other}");
        }
    }

    #[test]
    fn errors_in_the_file_are_reported_with_their_line() {
        for (text, line, part) in [
            ("[set]\nn_heads = \n", "line 2", "TOML"),
            (
                "\n[sets]\nn_heads = 1\n",
                "line 2",
                "expected [set], [rename] or [tensors]",
            ),
            ("set = 3", "line 1", "expected [set], [rename] or [tensors]"),
            (
                "[set]\n\nn_heads = [1]\n",
                "line 3",
                "expected one value, found array",
            ),
            (
                "[rename]\n\"a\" = 2\n",
                "line 2",
                "expected a tensor's name, found integer",
            ),
            (
                "[rename]\n\"a.{layer}\" = \"b\"\n",
                "line 2",
                "expected {layer} once",
            ),
        ] {
            let said = parse(text).expect_err(text).to_string();
            assert!(said.contains(line) && said.contains(part), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }

    #[test]
    fn changes_by_the_file_are_described_in_a_sentence() {
        let said = |text: &str| parse(text).expect("parses").of_file();
        assert_eq!(said(""), None);
        assert_eq!(said("[set]\n"), None);
        assert_eq!(
            said("[set]\nmask = \"none\"\nn_heads = 2\n[rename]\na = \"b\"").as_deref(),
            Some(
                "attnscope.toml beside the checkpoint sets mask = none, n_heads = 2 and renames tensors by a rule; \
                 --no-settings ignores it"
            )
        );
        let given = [("mask".to_owned(), "none".to_owned())];
        assert_eq!(Settings::of_command_line(&given).of_file(), None);
    }

    #[test]
    fn values_of_every_plain_kind_become_text() {
        let settings = parse("[set]\na = 12\nb = 1e-5\nc = true\nd = 'none'\n").expect("parses");
        let values: Vec<&str> = settings.values.iter().map(|s| s.value.as_str()).collect();
        assert_eq!(values, ["12", "0.00001", "true", "none"]);
    }
}
