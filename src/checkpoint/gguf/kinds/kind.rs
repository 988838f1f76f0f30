//! How to convert the metadata of one kind of model, as tables.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use crate::gguf::facts::Facts;

/// How to convert the metadata of one architecture.
#[derive(Debug)]
pub struct Kind {
    pub architecture: &'static str,
    pub model_type: &'static str,
    /// Numbers: ending of the file's key, and Hugging Face's key.
    pub numbers: &'static [(&'static str, &'static str)],
    /// Switches that are on if layer 0 has a tensor.
    pub switches: &'static [(&'static str, &'static str)],
    /// Values that files do not state, because all models of the kind have them.
    pub fixed: &'static [(&'static str, Fixed)],
    /// Ending of the key of the norms' epsilon, and Hugging Face's key.
    pub eps: (&'static str, &'static str),
    /// Whether only part of each head rotates; the file states how many dimensions.
    pub rotates_in_part: bool,
    /// Layers with a window: all but every n-th if the file states no pattern; 0 for all layers.
    pub full_every: Option<u64>,
    /// Whether the configuration omits the head width if it is hidden size / heads.
    pub divides: bool,
    /// Whether attention is bidirectional.
    pub sees_both: bool,
    /// Whether unscaled rotary embeddings must be stated, because the family has another default.
    pub requires_rope_parameters: bool,
    /// Endings of the keys that the kind's own code reads.
    pub known: &'static [&'static str],
    /// Usual configuration keys, and this kind's names for them; an empty name omits the key.
    pub renames: &'static [(&'static str, &'static str)],
    /// Conversion of what tables cannot express.
    pub own: Option<Own>,
}

/// Adds to a configuration what a kind's tables cannot express.
pub type Own = fn(&Facts<'_>, &mut Map<String, Value>) -> Result<()>;

/// A value that all models of a kind have.
#[derive(Debug, Clone, Copy)]
pub enum Fixed {
    Flag(bool),
    Word(&'static str),
}

impl Kind {
    /// Whether the kind reads the file's key with this ending.
    pub fn reads(&self, tail: &str) -> bool {
        self.known.contains(&tail) || self.numbers.iter().any(|(known, _)| *known == tail)
    }

    /// Writes the values that the tables give into a configuration.
    ///
    /// # Errors
    /// When a value is of the wrong type.
    pub fn fill(&self, facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
        for (name, value) in self.fixed {
            let value = match value {
                Fixed::Flag(flag) => json!(flag),
                Fixed::Word(word) => json!(word),
            };
            config.insert((*name).to_owned(), value);
        }
        for (name, probe) in self.switches {
            let in_layer = format!("model.layers.0.{probe}");
            let stored = facts.has(&in_layer) || facts.has(probe);
            config.insert((*name).to_owned(), json!(stored));
        }
        for (tail, name) in self.numbers {
            if let Some(number) = facts.number(tail)? {
                config.insert((*name).to_owned(), as_number(number));
            }
        }
        if let Some(own) = self.own {
            own(facts, config)?;
        }
        Ok(())
    }

    /// Renames the keys of a configuration to the kind's own names.
    pub fn rename(&self, config: &mut Map<String, Value>) {
        for (usual, own) in self.renames {
            let value = config.remove(*usual);
            if let Some(value) = value.filter(|_| !own.is_empty()) {
                config.insert((*own).to_owned(), value);
            }
        }
    }
}

/// Converts a number to JSON, as an integer if it is one: Hugging Face's configurations have integer counts.
fn as_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}
