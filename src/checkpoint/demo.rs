//! Checkpoints that are compiled in, so that the program shows something real anywhere.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Checkpoint, Config, Settings, TokenizerFile, safetensors};
use crate::error::{Error, Result};

/// A checkpoint inside the program.
#[derive(Debug)]
pub struct Bundle {
    /// What screens and reports call it.
    pub name: &'static str,
    config: &'static str,
    tokenizer: &'static str,
    /// The decoder's own vocabulary.
    tokenizer_target: Option<&'static str>,
    weights: &'static [u8],
    /// What its trainer recorded, as JSON, where a demo tells of it.
    training: Option<&'static str>,
}

macro_rules! file {
    ($directory:literal, $name:literal) => {
        include_str!(concat!("../../fixtures/", $directory, "/", $name))
    };
}

macro_rules! bundle {
    ($name:literal, $directory:literal, $target:expr, $training:expr) => {
        Bundle {
            name: $name,
            config: file!($directory, "config.json"),
            tokenizer: file!($directory, "tokenizer.json"),
            tokenizer_target: $target,
            weights: include_bytes!(concat!("../../fixtures/", $directory, "/model.safetensors")),
            training: $training,
        }
    };
}

/// A model of one text, and what its trainer recorded.
macro_rules! transformer {
    ($name:literal, $directory:literal) => {
        bundle!(
            $name,
            $directory,
            None,
            Some(file!($directory, "training.json"))
        )
    };
}

/// A model from one vocabulary into another.
macro_rules! translator {
    ($name:literal, $directory:literal) => {
        bundle!(
            $name,
            $directory,
            Some(file!($directory, "tokenizer_target.json")),
            Some(file!($directory, "readings.json"))
        )
    };
}

/// All of them; the first one opens when nothing is named.
pub static BUNDLES: &[Bundle] = &[
    bundle!("induction-demo", "induction", None, None),
    transformer!("degenerate", "degenerate"),
    transformer!("healthy", "healthy"),
    translator!("unscaled-translator", "seq2seq/unscaled"),
    translator!("scaled-translator", "seq2seq/scaled"),
];

/// The text the first one opens with: words, then the same words again.
pub const DEMO_PROMPT: &str = "one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river . \
     one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river .";

impl Bundle {
    /// The one of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUNDLES.iter().find(|bundle| bundle.name == name)
    }

    /// What its trainer recorded; nothing where no demo tells of it.
    ///
    /// # Errors
    /// When it is not JSON: never for a program that was built from a complete source tree.
    pub fn training(&self) -> Result<Value> {
        let record = self.training.unwrap_or("{}");
        serde_json::from_str(record).map_err(|e| Error::file(self.name, e.to_string()))
    }

    /// Opens it.
    ///
    /// # Errors
    /// Never for a program that was built from a complete source tree; the bytes are checked like any other.
    pub fn open(&self) -> Result<Checkpoint> {
        let file = |name: &str| Path::new(self.name).join(name);
        let weights = file("model.safetensors");
        let tokenizer = TokenizerFile::CompiledIn(self.tokenizer);
        let tokenizer = match self.tokenizer_target {
            Some(target) => {
                TokenizerFile::Pair(Box::new([tokenizer, TokenizerFile::CompiledIn(target)]))
            }
            None => tokenizer,
        };
        Ok(Checkpoint {
            name: self.name.to_owned(),
            config: Config::parse(&file("config.json"), self.config)?,
            tensors: safetensors::open_compiled_in(&weights.to_string_lossy(), self.weights)?,
            tokenizer,
            beside: Map::new(),
            settings: Settings::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_open_and_are_small_enough_to_publish() {
        let mut n_bytes = 0;
        for bundle in BUNDLES {
            let name = bundle.name;
            bundle.open().unwrap_or_else(|e| panic!("{name}: {e}"));
            let texts = [
                bundle.config,
                bundle.tokenizer,
                bundle.tokenizer_target.unwrap_or(""),
                bundle.training.unwrap_or(""),
            ];
            bundle.training().unwrap_or_else(|e| panic!("{name}: {e}"));
            n_bytes += bundle.weights.len() + texts.map(str::len).iter().sum::<usize>();
        }
        assert!(n_bytes <= 8 << 20, "{n_bytes} bytes");
    }
}
