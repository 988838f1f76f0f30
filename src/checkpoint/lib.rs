//! Bytes on disk → named tensors and a configuration. Knows no architecture.

pub mod adapter;
mod blocks;
mod bundle;
pub mod captured;
pub mod caught;
mod config;
pub mod counted;
mod data_file;
mod dtype;
pub mod embeddings;
mod flat_yaml;
mod flax;
pub mod gguf;
mod hdf5;
pub mod hub;
mod identity;
mod inflation;
mod iq_blocks;
mod kinds;
mod llama2c;
mod locate;
pub mod machine;
mod made;
pub mod nearest;
mod npy;
mod npz;
mod open;
mod packed;
mod packed_bits;
mod places;
pub mod pytorch;
mod quantisation;
mod read_files;
mod reader;
mod regular;
mod safetensors;
mod scales;
mod sentence;
mod settings;
mod shape;
mod shards;
mod silent_keys;
mod small_floats;
mod step_directory;
mod stored;
mod tensor_view;
mod tensorflow;
mod tensors;
mod tokenizer_file;
mod unwrap;
mod whole_file;
mod writers;

use std::path::Path;

use serde_json::{Map, Value};

pub use blocks::BlockType;
pub use bundle::Bundle;
pub use config::{Config, Knob, Origin, SetBy};
pub use dtype::Dtype;
pub use kinds::{is_trainer_state, other_directory};
pub use open::Opening;
pub use quantisation::Quantisation;
pub use read_files::{was_read, will_read};
pub use reader::Reader;
pub use regular::{open_regular, read_regular};
pub use settings::{Setting, Settings};
pub use shards::files_of as index_files;
pub use silent_keys::is_silent;
pub use step_directory::described_above;
pub use tensor_view::TensorView;
pub use tensors::{TensorInfo, Tensors};
pub use tokenizer_file::TokenizerFile;
pub use whole_file::{CONFIGURATION, DOCUMENT, VOCABULARY, read_text, read_whole};

/// The file of settings of generation.
pub const GENERATION: &str = "generation_config.json";

use self::data_file::DataFile;
use attnscope_compute::error::Result;

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
    /// Opens a directory or a weight file, as it says itself what it is.
    ///
    /// # Errors
    /// When the path is missing, there are no weights, or a file lies.
    pub fn open(path: &Path) -> Result<Self> {
        Opening::from(Some(path.to_path_buf())).open()
    }

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
