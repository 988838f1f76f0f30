//! A checkpoint that is open: its configuration, its tensors, and what stands beside them.

use std::path::Path;

use attnscope_compute::error::Result;
use serde_json::{Map, Value};

use super::config::{Config, Knob};
use super::data_file::DataFile;
use super::settings::Settings;
use super::tensors::Tensors;
use super::tokenizer_file::TokenizerFile;
use super::whole_file::{DOCUMENT, read_text};

/// The file of settings of generation.
pub const GENERATION: &str = "generation_config.json";

/// An open checkpoint: configuration read, weight files opened, headers checked, no weight touched.
#[derive(Debug)]
pub struct Checkpoint {
    /// Base name of the directory or file: what screens and reports call it.
    pub name: String,
    pub config: Config,
    pub tensors: Tensors,
    pub tokenizer: TokenizerFile,
    /// Plain values that stand beside the weights: `model_args`, `iter_num`, ….
    pub beside: Map<String, Value>,
    /// What a person says about it.
    pub settings: Settings,
    /// What there is to say of how it was opened and read, a sentence each.
    pub remarks: Vec<String>,
    /// Names of stored tensors that the model never reads, less those that are known to be no weights.
    pub unread: Vec<String>,
    /// The prompt is a picture: of a model of two towers, the one that sees is meant.
    pub sees: bool,
    /// Facts about how it was opened, beside those that its configuration gives.
    pub knobs: Vec<Knob>,
    /// The files beside the weights that say what these are.
    pub(crate) described_by: Vec<DataFile>,
}

impl Checkpoint {
    /// What there is to say of how it is read: the file of settings beside it first.
    pub fn remarks(&self) -> Vec<String> {
        let of_file = self.settings.of_file();
        of_file.into_iter().chain(self.remarks.clone()).collect()
    }

    /// The values of a small JSON file beside the configuration; `None` where there is none that can be read.
    pub fn beside_config(&self, name: &str) -> Option<Map<String, Value>> {
        let path = self.config.path().with_file_name(name);
        let text = read_text(&path, DOCUMENT).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether its files are still those that were opened.
    ///
    /// # Errors
    /// [`Error::Changed`](attnscope_compute::error::Error::Changed) names the first that is not.
    pub fn unchanged(&self) -> Result<()> {
        self.described_by.iter().try_for_each(DataFile::unchanged)?;
        self.tensors.unchanged()
    }

    /// Takes a configuration that the weights tell, where the files hold none, and the tokenizer that goes with it.
    pub fn describe(&mut self, config: Config) {
        if let Some(kind) = config.get("model_type").and_then(Value::as_str) {
            self.tokenizer.set_model_type(kind);
        }
        self.config = config;
    }

    /// Says why prompts can only be ids, where no tokenizer was found.
    pub fn has_no_text(&mut self, reason: &'static str) {
        if matches!(self.tokenizer, TokenizerFile::Missing) {
            self.tokenizer = TokenizerFile::Elsewhere(reason);
        }
    }

    /// The files it is read from.
    pub fn files(&self) -> Vec<&Path> {
        let mut files = vec![self.config.path()];
        files.extend(self.tensors.files());
        files.extend(self.tokenizer.files());
        files
    }

    /// The element types of the floating-point tensors, most bytes first: `bf16`, or `bf16+f32`.
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
