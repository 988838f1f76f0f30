//! Checkpoints that are compiled into a program, so that it has something real to show anywhere.

use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Checkpoint, Config, Settings, TokenizerFile, safetensors};

/// The files of a checkpoint that is compiled into a program.
#[derive(Debug)]
pub struct Bundle {
    /// Name in screens and reports.
    pub name: &'static str,
    /// `config.json`.
    pub config: &'static str,
    /// `tokenizer.json`.
    pub tokenizer: &'static str,
    /// The decoder's vocabulary, if it differs from the encoder's.
    pub tokenizer_target: Option<&'static str>,
    /// `model.safetensors`.
    pub weights: &'static [u8],
    /// The trainer's record as JSON, if a demo uses it.
    pub training: Option<&'static str>,
    /// The checkpoint that the demo compares it with, if there is one.
    pub twin: fn() -> Option<&'static Bundle>,
}

impl Bundle {
    /// Parses the trainer's record; an empty object if there is none.
    ///
    /// # Errors
    /// When the record is not JSON, which does not happen in a program built from a complete source tree.
    pub fn training(&self) -> Result<Value> {
        let record = self.training.unwrap_or("{}");
        serde_json::from_str(record).map_err(|e| Error::file(self.name, e.to_string()))
    }

    /// Opens the checkpoint.
    ///
    /// # Errors
    /// Never for a program built from a complete source tree; the bytes are checked like any other.
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
            plain_values: Map::new(),
            settings: Settings::default(),
            remarks: Vec::new(),
            unread: Vec::new(),
            sees: false,
            knobs: Vec::new(),
            described_by: Vec::new(),
        })
    }
}
