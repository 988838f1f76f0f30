//! From a path to an open checkpoint: which file holds the weights, in which format, and what stands beside it.

use std::path::{Path, PathBuf};

use serde_json::Map;

use super::adapter::Adapter;
use super::bundle::Bundle;
use super::config::Config;
use super::data_file::DataFile;
use super::pytorch::StateDict;
use super::read_files::will_read;
use super::settings::{self, Settings};
use super::tensors::Tensors;
use super::tokenizer_file::TokenizerFile;
use super::{Checkpoint, Quantisation, gguf, packed, pytorch, safetensors};
use crate::error::{Error, Result};

const CONFIG: &str = "config.json";
/// Sizes beside weights as Meta publishes them.
const PARAMS: &str = "params.json";
const SAFETENSORS: &str = "model.safetensors";
const SAFETENSORS_INDEX: &str = "model.safetensors.index.json";
const PYTORCH: &str = "pytorch_model.bin";
const PYTORCH_INDEX: &str = "pytorch_model.bin.index.json";
const TRAINER: &str = "ckpt.pt";

/// What a directory is searched for, for messages.
const LOOKED_FOR: &str = "model.safetensors, model.safetensors.index.json, pytorch_model.bin, \
     pytorch_model.bin.index.json, one .gguf, ckpt.pt, one .pt or .pth, or one other .safetensors";

/// What a checkpoint is to be opened from, and what a person says about it.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// A directory or a weight file.
    pub path: Option<PathBuf>,
    /// The compiled-in checkpoint that opens where there is no path.
    pub bundle: Option<&'static Bundle>,
    /// Which file of the directory holds the weights.
    pub weights: Option<PathBuf>,
    /// A tokenizer that lies elsewhere.
    pub tokenizer: Option<PathBuf>,
    /// Keys and values that correct how it is read.
    pub set: Vec<(String, String)>,
    /// Whether the file of settings beside it counts for nothing.
    pub ignores_settings: bool,
    /// Whether an adapter beside the weights is left out.
    pub ignores_adapter: bool,
}

impl From<Option<PathBuf>> for Opening {
    fn from(path: Option<PathBuf>) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }
}

impl Opening {
    /// Opens it.
    ///
    /// # Errors
    /// When the path is missing, there are no weights, or a file lies.
    pub fn open(&self) -> Result<Checkpoint> {
        let Some(path) = &self.path else {
            let Some(bundle) = self.bundle else {
                return Err(Error::Setting(
                    "expected a checkpoint, found none".to_owned(),
                ));
            };
            let mut demo = bundle.open()?;
            if let Some(file) = &self.tokenizer {
                demo.tokenizer = TokenizerFile::named(file, None)?;
            }
            demo.settings = Settings::of_command_line(&self.set);
            return match &self.weights {
                None => Ok(demo),
                Some(_) => Err(Error::Setting(
                    "--weights: expected the directory it is in as the checkpoint".to_owned(),
                )),
            };
        };
        if !path.exists() {
            let problem =
                "no such file or directory; expected a checkpoint directory or a weight file";
            return Err(Error::file(path, problem));
        }
        let (directory, file) = match (path.is_dir(), &self.weights) {
            (true, Some(weights)) => (path.clone(), path.join(weights)),
            (true, None) => (path.clone(), weights_in(path)?),
            (false, None) => (directory_of(path), path.clone()),
            (false, Some(_)) => {
                let problem = "found a file; --weights chooses a file of a directory";
                return Err(Error::file(path, problem));
            }
        };
        if !file.exists() {
            return Err(Error::file(&file, "no such file; --weights names it"));
        }
        let of_adapter = Adapter::check(&directory, &file, self.ignores_adapter)?;
        let described_by = describing(&directory, &file)?;
        let settings = if self.ignores_settings {
            Settings::of_command_line(&self.set)
        } else {
            Settings::read(&directory, &self.set)?
        };
        let opened = match Format::of(&file)? {
            Format::Gguf => open_gguf(&file, &directory),
            format => open_weights(format, &file, &directory),
        };
        // A file that is written meanwhile may look damaged: that it changed says more.
        described_by.iter().try_for_each(DataFile::unchanged)?;
        let mut checkpoint = Checkpoint {
            described_by,
            ..opened?
        };
        checkpoint.tensors.unchanged()?;
        // A directory with several models in it, or a bare file, is called after the file.
        if path.is_dir() && self.weights.is_none() && !is_gguf(&file) {
            checkpoint.name = name_of(path);
        }
        if let Some(file) = &self.tokenizer {
            let model_type = checkpoint.config.get("model_type").and_then(|v| v.as_str());
            checkpoint.tokenizer = TokenizerFile::named(file, model_type)?;
        }
        settings.rename(&mut checkpoint.tensors)?;
        checkpoint.settings = settings;
        checkpoint.remarks.extend(of_adapter);
        // Also those that this command may never need, as a tokenizer where ids are given.
        checkpoint.files().into_iter().for_each(will_read);
        Ok(checkpoint)
    }
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Safetensors,
    SafetensorsIndex,
    Pytorch,
    PytorchIndex,
    Gguf,
}

impl Format {
    /// By the end of the name, or by how the file begins.
    fn of(file: &Path) -> Result<Self> {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends(&[".safetensors.index.json"]) {
            Ok(Self::SafetensorsIndex)
        } else if ends(&[".bin.index.json"]) {
            Ok(Self::PytorchIndex)
        } else if ends(&[".safetensors"]) {
            Ok(Self::Safetensors)
        } else if ends(&[".bin", ".pt", ".pth"]) {
            Ok(Self::Pytorch)
        } else if gguf::is_gguf(file) {
            Ok(Self::Gguf)
        } else {
            let problem = "expected a checkpoint directory or a weight file (.safetensors, .bin, .pt, .pth, .gguf), \
                           found a file of another kind";
            Err(Error::file(file, problem))
        }
    }
}

/// The files that say what the weights of another one are: another save of theirs would not go with these.
fn describing(directory: &Path, file: &Path) -> Result<Vec<DataFile>> {
    let is_index = file.extension().is_some_and(|ending| ending == "json");
    let beside = [CONFIG, PARAMS, settings::FILE].map(|name| directory.join(name));
    let all = beside
        .into_iter()
        .chain(is_index.then(|| file.to_path_buf()));
    all.filter(|path| path.is_file())
        .map(|path| DataFile::open_as(&path, "a file"))
        .collect()
}

/// The file of a directory that holds the weights.
fn weights_in(directory: &Path) -> Result<PathBuf> {
    let named = |name: &str| Some(directory.join(name)).filter(|path| path.exists());
    let by_name = [SAFETENSORS, SAFETENSORS_INDEX, PYTORCH, PYTORCH_INDEX];
    if let Some(found) = by_name.iter().find_map(|name| named(name)) {
        return Ok(found);
    }
    if let Some(found) = gguf::file_at(directory)? {
        return Ok(found);
    }
    if let Some(found) = named(TRAINER) {
        return Ok(found);
    }
    for endings in [&["pt", "pth"][..], &["safetensors"]] {
        let mut found = ending_in(directory, endings);
        match found.len() {
            0 => {}
            1 => return Ok(found.remove(0)),
            n => {
                let kinds: Vec<String> =
                    endings.iter().map(|ending| format!(".{ending}")).collect();
                let problem = format!(
                    "holds {n} files that end in {}; --weights FILE names the one to open",
                    kinds.join(" or ")
                );
                return Err(Error::file(directory, problem));
            }
        }
    }
    let problem = format!("no weights here; expected {LOOKED_FOR}");
    Err(Error::file(directory, problem))
}

/// Files of a directory by the ends of their names, in order.
fn ending_in(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
            path.is_file() && ending.is_some_and(|e| endings.contains(&e.as_str()))
        })
        .collect();
    found.sort();
    found
}

fn is_gguf(file: &Path) -> bool {
    matches!(Format::of(file), Ok(Format::Gguf))
}

fn directory_of(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

/// What a directory is called, even when it is given as `.`.
fn name_of(directory: &Path) -> String {
    let whole = directory.canonicalize().ok();
    let name = whole.and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| directory.display().to_string())
}

fn open_gguf(file: &Path, directory: &Path) -> Result<Checkpoint> {
    let opened = gguf::open_file(file)?;
    let tokenizer = match opened.vocabulary {
        Some(vocabulary) => TokenizerFile::Gguf {
            path: file.to_path_buf(),
            vocabulary: Box::new(vocabulary),
        },
        None => {
            let model_type = opened.config.get("model_type").and_then(|v| v.as_str());
            TokenizerFile::find(directory, model_type)
        }
    };
    Ok(Checkpoint {
        remarks: gguf::remark(&opened.config).into_iter().collect(),
        name: stem(file),
        config: opened.config,
        tensors: opened.tensors,
        tokenizer,
        beside: Map::new(),
        settings: Settings::default(),
        unread: Vec::new(),
        described_by: Vec::new(),
    })
}

fn stem(file: &Path) -> String {
    let name = file.file_stem().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

fn open_weights(format: Format, file: &Path, directory: &Path) -> Result<Checkpoint> {
    let config_path = directory.join(CONFIG);
    let config = if config_path.exists() {
        Config::read(&config_path)?
    } else {
        Config::absent(file)
    };
    let alone = |tensors: Tensors| StateDict {
        tensors,
        beside: Map::new(),
    };
    let StateDict {
        mut tensors,
        mut beside,
    } = match format {
        Format::Safetensors => alone(safetensors::open_file(file)?),
        Format::SafetensorsIndex => alone(safetensors::open_sharded(file)?),
        Format::PytorchIndex => pytorch::open_sharded(file)?,
        Format::Pytorch | Format::Gguf => pytorch::open_file(file)?,
    };
    // Tensors of a method that cannot be read stay as they are, to be looked at; the family refuses them.
    if let Ok(quantisation) = Quantisation::read(&config) {
        packed::combine(&mut tensors, quantisation)?;
    }
    let params = directory.join(PARAMS);
    if config.is_absent() && params.is_file() {
        let path = params.clone();
        let read = Config::read(&params)?;
        let values: Map<_, _> = read.into_values();
        log::debug!("{} stands in for {CONFIG}", path.display());
        beside.insert(PARAMS.to_owned(), values.into());
    }
    let model_type = config.get("model_type").and_then(|v| v.as_str());
    Ok(Checkpoint {
        name: stem(file),
        tokenizer: TokenizerFile::find(directory, model_type),
        config,
        tensors,
        beside,
        settings: Settings::default(),
        remarks: Vec::new(),
        unread: Vec::new(),
        described_by: Vec::new(),
    })
}
