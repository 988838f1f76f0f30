//! What becomes of the metadata of one kind of model, as tables say it.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use crate::gguf::facts::Facts;

/// What becomes of one architecture's metadata.
#[derive(Debug)]
pub struct Kind {
    pub architecture: &'static str,
    pub model_type: &'static str,
    /// Numbers: the end of the file's key, and Hugging Face's key.
    pub numbers: &'static [(&'static str, &'static str)],
    /// Switches that a stored tensor of layer 0 turns on.
    pub switches: &'static [(&'static str, &'static str)],
    /// What the files do not say, since all models of the kind have it.
    pub fixed: &'static [(&'static str, Fixed)],
    /// The end of the key of the epsilon of norms, and Hugging Face's key.
    pub eps: (&'static str, &'static str),
    /// Part of each head rotates, as many dimensions as the file says.
    pub rotates_in_part: bool,
    /// Windows hold for the layers that a pattern names, and for all but every n-th without one; 0 for no layer.
    pub full_every: Option<u64>,
    /// The width of a head is what the heads divide, and has no key where they do.
    pub divides: bool,
    /// Tokens see those behind them too.
    pub sees_both: bool,
    /// Without words on positions the family takes others for granted.
    pub states_rope: bool,
    /// Keys that the kind's own code reads, by their ends.
    pub known: &'static [&'static str],
    /// Keys of most families, and what this one calls them; nothing where it has no such key.
    pub renames: &'static [(&'static str, &'static str)],
    /// What no table says.
    pub own: Option<Own>,
}

/// Puts into a configuration what a kind's tables do not say.
pub type Own = fn(&Facts<'_>, &mut Map<String, Value>) -> Result<()>;

/// A value that all models of a kind have.
#[derive(Debug, Clone, Copy)]
pub enum Fixed {
    Flag(bool),
    Word(&'static str),
}

impl Kind {
    /// Whether the kind reads a key of the file, by its end.
    pub fn reads(&self, tail: &str) -> bool {
        self.known.contains(&tail) || self.numbers.iter().any(|(known, _)| *known == tail)
    }

    /// Puts what the tables say into a configuration.
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

    /// Gives the keys of a configuration the names that the family has for them.
    pub fn rename(&self, config: &mut Map<String, Value>) {
        for (usual, own) in self.renames {
            let value = config.remove(*usual);
            if let Some(value) = value.filter(|_| !own.is_empty()) {
                config.insert((*own).to_owned(), value);
            }
        }
    }
}

/// Counts are whole numbers in Hugging Face's configurations.
fn as_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}
