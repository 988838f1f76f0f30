//! An open checkpoint: its configuration, its tensors, and the values beside them.

use std::path::Path;

use attnscope_compute::error::Result;
use serde_json::{Map, Value};

use super::config::{Config, Knob};
use super::data_file::DataFile;
use super::settings::Settings;
use super::tensors::Tensors;
use super::tokenizer_file::TokenizerFile;
use super::whole_file::{DOCUMENT, read_text};

/// Name of the file of generation settings.
pub const GENERATION: &str = "generation_config.json";

/// An open checkpoint: the configuration is read, headers of weight files are checked, no weight has been read.
#[derive(Debug)]
pub struct Checkpoint {
    /// Base name of the directory or file, used in screens and reports.
    pub name: String,
    pub config: Config,
    pub tensors: Tensors,
    pub tokenizer: TokenizerFile,
    /// Plain values stored beside the weights: `model_args`, `iter_num`, ….
    pub plain_values: Map<String, Value>,
    /// The user's settings for this checkpoint.
    pub settings: Settings,
    /// Remarks on how it was opened and read, one sentence each.
    pub remarks: Vec<String>,
    /// Names of stored tensors that the model never reads, except those known not to be weights.
    pub unread: Vec<String>,
    /// Whether the prompt is an image: in a two-tower model, this selects the vision tower.
    pub sees: bool,
    /// Facts about how it was opened, in addition to those in its configuration.
    pub knobs: Vec<Knob>,
    /// The files that describe the weights, such as `config.json`.
    pub(crate) described_by: Vec<DataFile>,
}

impl Checkpoint {
    /// Lists the remarks on how it was read, starting with that on the settings file.
    pub fn remarks(&self) -> Vec<String> {
        let of_file = self.settings.of_file();
        of_file.into_iter().chain(self.remarks.clone()).collect()
    }

    /// Reads a small JSON file in the configuration's directory; `None` if it is missing or cannot be read.
    pub fn sibling_config(&self, name: &str) -> Option<Map<String, Value>> {
        let path = self.config.path().with_file_name(name);
        let text = read_text(&path, DOCUMENT).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Checks that its files have not changed since they were opened.
    ///
    /// # Errors
    /// [`Error::Changed`](attnscope_compute::error::Error::Changed) for the first file that has changed.
    pub fn unchanged(&self) -> Result<()> {
        self.described_by.iter().try_for_each(DataFile::unchanged)?;
        self.tensors.unchanged()
    }

    /// Replaces the configuration with one derived from the weights, and sets the tokenizer's model type.
    pub fn describe(&mut self, config: Config) {
        if let Some(kind) = config.get("model_type").and_then(Value::as_str) {
            self.tokenizer.set_model_type(kind);
        }
        self.config = config;
    }

    /// Sets the reason why prompts must be token ids, if no tokenizer was found.
    pub fn has_no_text(&mut self, reason: &'static str) {
        if matches!(self.tokenizer, TokenizerFile::Missing) {
            self.tokenizer = TokenizerFile::Elsewhere(reason);
        }
    }

    /// Sets the reason why prompts must be token ids although there is a tokenizer: it is that of another part.
    pub fn has_text_of_another_part(&mut self, reason: &'static str) {
        self.tokenizer = TokenizerFile::Elsewhere(reason);
    }

    /// Lists the files that it is read from.
    pub fn files(&self) -> Vec<&Path> {
        let mut files = vec![self.config.path()];
        files.extend(self.tensors.files());
        files.extend(self.tokenizer.files());
        files
    }

    /// Lists the element types of the floating-point tensors, in order of their total bytes: `bf16`, or `bf16+f32`.
    pub fn dtype_label(&self) -> String {
        let mut bytes_of: Vec<(String, usize)> = Vec::new();
        for (_, info) in self
            .tensors
            .iter()
            .filter(|(_, info)| info.dtype.is_float())
        {
            let label = info.dtype.to_string();
            match bytes_of.iter_mut().find(|(seen, _)| *seen == label) {
                Some((_, n)) => *n += info.n_bytes(),
                None => bytes_of.push((label, info.n_bytes())),
            }
        }
        bytes_of.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        bytes_of
            .into_iter()
            .map(|(label, _)| label)
            .collect::<Vec<_>>()
            .join("+")
    }
}
