//! The file beside a configuration that says how sound becomes what a model hears.

use std::path::PathBuf;

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

const PREPROCESSOR: &str = "preprocessor_config.json";

/// The file of newer transformers versions: settings of a feature extractor beside those of a tokenizer.
const PROCESSOR: &str = "processor_config.json";

/// Upper limit of samples per input: ten minutes at 48 kHz.
pub const MOST_SAMPLES: usize = 10 * 60 * 48_000;

/// Upper limit of samples per window.
pub const WIDEST_WINDOW: usize = 1 << 14;

/// Upper limit of samples per second.
pub const FASTEST: usize = 1 << 20;

/// The settings of a feature extractor.
pub struct Extractor {
    values: Map<String, Value>,
    pub file: &'static str,
    path: PathBuf,
}

impl Extractor {
    /// That of a checkpoint; without a file, nothing is stated.
    pub fn of(checkpoint: &Checkpoint, reader: &Reader<'_>) -> Self {
        let found = checkpoint
            .sibling_config(PREPROCESSOR)
            .map(|values| (values, PREPROCESSOR));
        let newer = || {
            let mut values = checkpoint.sibling_config(PROCESSOR)?;
            let Some(Value::Object(values)) = values.remove("feature_extractor") else {
                return None;
            };
            Some((values, PROCESSOR))
        };
        let (values, file) = found.or_else(newer).unwrap_or((Map::new(), PREPROCESSOR));
        Self {
            values,
            file,
            path: reader.path().with_file_name(file),
        }
    }

    /// A value; `None` if it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Whether a value is null.
    pub fn is_null(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(Value::is_null)
    }

    /// A whole number from 1 to `most`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn size(&self, key: &str, default: usize, most: usize) -> Result<usize> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let size = value
            .as_u64()
            .filter(|size| (1..=most as u64).contains(size));
        size.map(|size| size as usize).ok_or_else(|| {
            self.error(
                key,
                format!("expected a whole number from 1 to {most}, found {value}"),
            )
        })
    }

    /// A whole number up to `most`, where null is 0.
    ///
    /// # Errors
    /// When it is something else.
    pub fn size_or_none(&self, key: &str, default: usize, most: usize) -> Result<usize> {
        let is_none = self.is_null(key) || self.get(key).and_then(Value::as_u64) == Some(0);
        if is_none {
            return Ok(0);
        }
        self.size(key, default, most)
    }

    /// A switch.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.error(key, format!("expected true or false, found {value}"))),
        }
    }

    /// A number other than 0, of at most some size.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self, key: &str, default: f64, most: f64) -> Result<f64> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let number = value.as_f64().filter(|number| number.abs() <= most);
        number.ok_or_else(|| {
            let problem = format!("expected a number of at most {most:e}, found {value}");
            self.error(key, problem)
        })
    }

    /// The number of bands, which is that of the model.
    ///
    /// # Errors
    /// When it is another.
    pub fn check_bands(&self, n_mels: usize) -> Result<()> {
        let found = self.size("feature_size", n_mels, MOST_SAMPLES)?;
        if found == n_mels {
            return Ok(());
        }
        let problem = format!("expected the {n_mels} bands of num_mel_bins, found {found}");
        Err(self.error("feature_size", problem))
    }

    /// Says that noise is left out, if the extractor adds some.
    pub fn note_dither(&self, reader: &mut Reader<'_>) {
        let dither = self.get("dither").and_then(Value::as_f64);
        if dither.is_some_and(|dither| dither != 0.0) {
            reader.remark(format!(
                "{} adds noise to sounds (dither): they are heard without it",
                self.file
            ));
        }
    }

    /// Where the settings are from.
    pub fn origin(&self) -> Origin {
        if self.values.is_empty() {
            Origin::Family
        } else {
            Origin::Derived(self.file.to_owned())
        }
    }

    pub fn error(&self, key: &str, problem: String) -> Error {
        Error::config(&self.path, key, problem)
    }
}
