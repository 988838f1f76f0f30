//! Checkpoints that are compiled into a program, so that it shows something real anywhere.

use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Checkpoint, Config, Settings, TokenizerFile, safetensors};

/// The files of a checkpoint that is part of a program.
#[derive(Debug)]
pub struct Bundle {
    /// What screens and reports call it.
    pub name: &'static str,
    /// `config.json`.
    pub config: &'static str,
    /// `tokenizer.json`.
    pub tokenizer: &'static str,
    /// The decoder's own vocabulary, where it has one.
    pub tokenizer_target: Option<&'static str>,
    /// `model.safetensors`.
    pub weights: &'static [u8],
    /// What its trainer recorded, as JSON, where a demo tells of it.
    pub training: Option<&'static str>,
    /// The checkpoint that it is told beside, if there is one.
    pub twin: fn() -> Option<&'static Bundle>,
}

impl Bundle {
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
            remarks: Vec::new(),
            unread: Vec::new(),
            sees: false,
            knobs: Vec::new(),
            described_by: Vec::new(),
        })
    }
}
