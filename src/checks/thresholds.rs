//! Where checks draw their lines: one table in TOML, which a file of the same form may change.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use attnscope_checkpoint::{CONFIGURATION, read_text};
use attnscope_compute::error::{Error, Result};

/// The table as it is shown, with its sources.
pub const DEFAULTS: &str = include_str!("thresholds.toml");

/// A number for every name: `entropy-collapse.relative_entropy`.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds(BTreeMap<String, f64>);

impl Default for Thresholds {
    fn default() -> Self {
        static READ: LazyLock<BTreeMap<String, f64>> =
            LazyLock::new(|| numbers(DEFAULTS).unwrap_or_default());
        Self(READ.clone())
    }
}

impl Thresholds {
    /// The defaults, with what a file changes.
    ///
    /// # Errors
    /// As for [`Thresholds::with_file`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::default().with_file(path)
    }

    /// These, with what a file changes.
    ///
    /// # Errors
    /// When the file cannot be read, is no such table, or has a name that is not known.
    pub fn with_file(mut self, path: &Path) -> Result<Self> {
        let text = read_text(path, CONFIGURATION)?;
        for (name, value) in numbers(&text).map_err(|problem| Error::file(path, problem))? {
            match self.0.get_mut(&name) {
                Some(known) => *known = value,
                None => {
                    let known: Vec<String> = self.names().collect();
                    let problem = format!("{name} is not known; known: {}", known.join(", "));
                    return Err(Error::file(path, problem));
                }
            }
        }
        Ok(self)
    }

    /// Moves one; gives whether there is one of this name.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        let known = self.0.get_mut(name);
        known.map(|known| *known = value).is_some()
    }

    /// The number of a name; NaN for a name that is not in the table.
    pub fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.0.keys().cloned()
    }
}

fn numbers(text: &str) -> std::result::Result<BTreeMap<String, f64>, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| format!("is not TOML ({})", e.message()))?;
    let mut numbers = BTreeMap::new();
    for (check, values) in &table {
        let toml::Value::Table(values) = values else {
            return Err(format!(
                "{check}: expected a table [{check}], found {}",
                values.type_str()
            ));
        };
        for (name, value) in values {
            let number = match value {
                toml::Value::Float(number) if number.is_finite() => Some(*number),
                toml::Value::Integer(number) => Some(*number as f64),
                _ => None,
            };
            let number = number.ok_or_else(|| {
                format!(
                    "{check}.{name}: expected a number, found {}",
                    value.type_str()
                )
            })?;
            numbers.insert(format!("{check}.{name}"), number);
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("thresholds.toml");
        let open = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            Thresholds::open(&path).map_err(|e| e.to_string())
        };
        let changed = open("[score-explosion]\nmax_abs_score = 50\n").expect("a table");
        assert_eq!(changed.of("score-explosion.max_abs_score"), 50.0);
        let mut back = changed.clone();
        back.0
            .insert("score-explosion.max_abs_score".to_owned(), 100.0);
        assert_eq!(back, Thresholds::default());
        for (text, said) in [
            (
                "[score-explosion]\nmax = 5\n",
                "score-explosion.max is not known",
            ),
            (
                "[score-explosion]\nmax_abs_score = \"x\"\n",
                "expected a number",
            ),
            ("max_abs_score = 5\n", "expected a table"),
            ("[score", "is not TOML"),
        ] {
            let error = open(text).expect_err("refused");
            assert!(
                error.contains(said) && error.contains("thresholds.toml"),
                "{error}"
            );
        }
    }
}
