//! Bytes on disk → named tensors and a configuration. Knows no architecture.

mod blocks;
mod config;
mod demo;
mod dtype;
pub mod gguf;
mod map;
mod packed;
pub mod pytorch;
mod quantisation;
mod safetensors;
mod scales;
mod shards;
mod small_floats;
mod stored;
mod tensors;
mod tokenizer_file;

use std::path::Path;

pub use blocks::BlockType;
pub use config::{Config, Knob, Origin, Reader};
pub use demo::DEMO_PROMPT;
pub use dtype::Dtype;
pub use quantisation::Quantisation;
pub use tensors::{TensorInfo, TensorView, Tensors};
pub use tokenizer_file::TokenizerFile;

use crate::error::{Error, Result};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PYTORCH: &str = "pytorch_model.bin";
const PYTORCH_INDEX: &str = "pytorch_model.bin.index.json";

/// An open checkpoint: configuration read, weight files mapped, headers checked, no weight touched.
#[derive(Debug)]
pub struct Checkpoint {
    /// Base name of the directory: what screens and reports call it.
    pub name: String,
    pub config: Config,
    pub tensors: Tensors,
    pub tokenizer: TokenizerFile,
}

impl Checkpoint {
    /// Opens a Hugging Face directory, a GGUF file, or a directory with one GGUF file in it.
    ///
    /// # Errors
    /// When the path is missing, is no directory with `config.json` and weights, or a file in it lies.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(Error::file(
                path,
                "no such file or directory; expected a checkpoint directory",
            ));
        }
        if !path.join(WEIGHTS).exists()
            && !path.join(INDEX).exists()
            && let Some(file) = gguf::file_at(path)?
        {
            return Self::open_gguf(&file);
        }
        if !path.is_dir() {
            return Err(Error::file(
                path,
                format!(
                    "expected a checkpoint directory with {CONFIG} and {WEIGHTS}, found a file"
                ),
            ));
        }
        let config_path = path.join(CONFIG);
        if !config_path.exists() {
            return Err(Error::file(
                path,
                format!("no {CONFIG} here; expected a checkpoint directory"),
            ));
        }
        let config = Config::read(&config_path)?;
        let mut tensors = if path.join(WEIGHTS).exists() {
            safetensors::open_file(&path.join(WEIGHTS))?
        } else if path.join(INDEX).exists() {
            safetensors::open_sharded(&path.join(INDEX))?
        } else if path.join(PYTORCH).exists() {
            pytorch::open_file(&path.join(PYTORCH))?.tensors
        } else if path.join(PYTORCH_INDEX).exists() {
            pytorch::open_sharded(&path.join(PYTORCH_INDEX))?.tensors
        } else {
            return Err(Error::file(
                path,
                format!(
                    "no weights here; expected {WEIGHTS}, {INDEX}, {PYTORCH} or {PYTORCH_INDEX}"
                ),
            ));
        };
        // Tensors of a method that cannot be read stay as they are, to be looked at; the family refuses them.
        if let Ok(quantisation) = Quantisation::read(&config) {
            packed::combine(&mut tensors, quantisation)?;
        }
        let model_type = config.get("model_type").and_then(|value| value.as_str());
        let tokenizer = TokenizerFile::find(path, model_type);
        let name = path
            .canonicalize()
            .ok()
            .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
        Ok(Self {
            name: name.unwrap_or_else(|| path.display().to_string()),
            config,
            tensors,
            tokenizer,
        })
    }

    fn open_gguf(file: &Path) -> Result<Self> {
        let opened = gguf::open_file(file)?;
        let name = file.file_stem().unwrap_or(file.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            config: opened.config,
            tensors: opened.tensors,
            tokenizer: TokenizerFile::Missing,
        })
    }

    /// Opens the checkpoint that is part of the program.
    ///
    /// # Errors
    /// Never for a program that was built from a complete source tree; the bytes are checked like any other.
    pub fn demo() -> Result<Self> {
        Ok(Self {
            name: demo::NAME.to_owned(),
            config: Config::parse(Path::new("induction/config.json"), demo::CONFIG)?,
            tensors: safetensors::open_compiled_in("induction/model.safetensors", demo::WEIGHTS)?,
            tokenizer: TokenizerFile::CompiledIn(demo::TOKENIZER),
        })
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
