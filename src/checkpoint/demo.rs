//! Checkpoints that are compiled in, so that the program shows something real anywhere.

use std::path::Path;

use serde_json::Map;

use super::{Checkpoint, Config, Settings, TokenizerFile, safetensors};
use crate::error::Result;

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
}

macro_rules! bundle {
    ($name:literal, $directory:literal) => {
        bundle!($name, $directory, None)
    };
    ($name:literal, $directory:literal, $target:expr) => {
        Bundle {
            name: $name,
            config: include_str!(concat!("../../fixtures/", $directory, "/config.json")),
            tokenizer: include_str!(concat!("../../fixtures/", $directory, "/tokenizer.json")),
            tokenizer_target: $target,
            weights: include_bytes!(concat!("../../fixtures/", $directory, "/model.safetensors")),
        }
    };
}

/// All of them; the first one opens when nothing is named.
pub static BUNDLES: &[Bundle] = &[
    bundle!("induction-demo", "induction"),
    bundle!("degenerate", "degenerate"),
    bundle!("healthy", "healthy"),
    bundle!(
        "unscaled-translator",
        "seq2seq/unscaled",
        Some(include_str!(
            "../../fixtures/seq2seq/unscaled/tokenizer_target.json"
        ))
    ),
    bundle!(
        "scaled-translator",
        "seq2seq/scaled",
        Some(include_str!(
            "../../fixtures/seq2seq/scaled/tokenizer_target.json"
        ))
    ),
];

/// The text the first one opens with: words, then the same words again.
pub const DEMO_PROMPT: &str = "one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river . \
     one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river .";

impl Bundle {
    /// The one of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUNDLES.iter().find(|bundle| bundle.name == name)
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
            bundle
                .open()
                .unwrap_or_else(|e| panic!("{}: {e}", bundle.name));
            let texts = [
                bundle.config,
                bundle.tokenizer,
                bundle.tokenizer_target.unwrap_or(""),
            ];
            n_bytes += bundle.weights.len() + texts.map(str::len).iter().sum::<usize>();
        }
        assert!(n_bytes <= 8 << 20, "{n_bytes} bytes");
    }
}
