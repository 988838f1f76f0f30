//! Opens a checkpoint at a path: finds the weight files, their format, and the files that describe them.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::Map;

use super::adapter::{self, AdapterConfig};
use super::bundle::Bundle;
use super::config::{Config, Knob, Origin};
use super::data_file::DataFile;
use super::hub::{Found, Hub};
use super::kinds::Format;
use super::named_paths::directory_of;
use super::nearest::path_meant;
use super::part_of_file::part_of;
use super::pytorch::StateDict;
use super::read_files::will_read;
use super::settings::{self, Settings};
use super::step_directory::above_step;
use super::tensors::Tensors;
use super::tokenizer_file::TokenizerFile;
use super::weight_files::{Located, Weights};
use super::{
    CONFIGURATION, Checkpoint, Quantisation, chosen_tokenizer, flat_yaml, flax, gguf, llama2c,
    locate, npz, packed, packed_bits, pytorch, read_text, safetensors, sentence, shards, slices,
};

const CONFIG: &str = "config.json";
/// Meta's file of sizes beside the weights.
const PARAMS: &str = "params.json";
/// LitGPT's file of settings beside the weights.
const MODEL_CONFIG: &str = "model_config.yaml";

/// What to open as a checkpoint, and the user's options for it.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// A directory or a weight file.
    pub path: Option<PathBuf>,
    /// The compiled-in checkpoint to open if there is no path.
    pub bundle: Option<&'static Bundle>,
    /// The file of the directory that holds the weights.
    pub weights: Option<PathBuf>,
    /// A tokenizer in another place.
    pub tokenizer: Option<PathBuf>,
    /// Settings that override those read from the files.
    pub set: Vec<(String, String)>,
    /// Whether to ignore the settings file beside the checkpoint.
    pub ignores_settings: bool,
    /// The base of an adapter, if not the one that the adapter names.
    pub base: Option<PathBuf>,
    /// Whether to ignore an adapter and open only its base.
    pub ignores_adapter: bool,
    /// How to find models by their hub names.
    pub hub: Hub,
    /// Whether the prompt is an image.
    pub sees: bool,
}

impl From<Option<PathBuf>> for Opening {
    fn from(path: Option<PathBuf>) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }
}

impl Checkpoint {
    /// Opens a directory or a weight file, with its format detected.
    ///
    /// # Errors
    /// When the path is missing, there are no weights, or a file's header contradicts its contents.
    pub fn open(path: &Path) -> Result<Self> {
        Opening::from(Some(path.to_path_buf())).open()
    }
}

impl Opening {
    /// Opens the checkpoint.
    ///
    /// # Errors
    /// When the path is missing, there are no weights, or a file's header contradicts its contents.
    pub fn open(&self) -> Result<Checkpoint> {
        let mut checkpoint = self.open_any()?;
        checkpoint.sees = self.sees;
        Ok(checkpoint)
    }

    fn open_any(&self) -> Result<Checkpoint> {
        let Some(path) = &self.path else {
            return self.open_bundle();
        };
        let (path, part) = part_of(path);
        let found = self.hub.find(&path)?;
        if part.is_some() {
            return self.open_model(&found, part.as_deref());
        }
        let directory = match adapter::directory_at(&found.path) {
            None => locate::adapter_below(&found.path)?,
            known => known,
        };
        if let Some(directory) = directory {
            return self.open_adapter(&found, &directory);
        }
        let mut checkpoint = self.open_model(&found, None)?;
        if self.base.is_some() {
            let name = &checkpoint.name;
            let said = format!("--base counts for nothing: {name} is no adapter");
            checkpoint.remarks.push(said);
        }
        Ok(checkpoint)
    }

    fn open_bundle(&self) -> Result<Checkpoint> {
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
        match &self.weights {
            None => Ok(demo),
            Some(_) => Err(Error::Setting(
                "--weights: expected the directory it is in as the checkpoint".to_owned(),
            )),
        }
    }

    /// Opens the base of an adapter and applies the adapter.
    fn open_adapter(&self, found: &Found, directory: &Path) -> Result<Checkpoint> {
        let config = AdapterConfig::read(directory)?;
        let base = self.base_of(&config, directory)?;
        let mut checkpoint = self.open_model(&base, None)?;
        if self.ignores_adapter {
            let path = directory.join(adapter::CONFIG);
            let remark = format!("the adapter of {} is left out", path.display());
            checkpoint.remarks.push(remark);
            return Ok(checkpoint);
        }
        adapter::apply(&mut checkpoint, &config, directory)?;
        if base.path != directory {
            checkpoint.name = match &found.name {
                Some(name) => name.clone(),
                None => name_of(directory),
            };
            let config_path = directory.join(adapter::CONFIG);
            checkpoint
                .described_by
                .push(DataFile::open_as(&config_path, "a file")?);
            let model_type = checkpoint.config.get("model_type").and_then(|v| v.as_str());
            // Tokens added with the adapter are only in its own tokenizer.
            let own = TokenizerFile::find(directory, model_type);
            if self.tokenizer.is_none() && !matches!(own, TokenizerFile::Missing) {
                checkpoint.tokenizer = own;
            }
        }
        checkpoint.files().into_iter().for_each(will_read);
        Ok(checkpoint)
    }

    /// Finds the base of an adapter: the one given by the user, the weights beside it, or the one that its configuration names.
    pub(super) fn base_of(&self, config: &AdapterConfig, directory: &Path) -> Result<Found> {
        let here = |path: &Path| Found {
            path: path.to_path_buf(),
            name: None,
        };
        if let Some(base) = &self.base {
            return self.hub.find(base);
        }
        // As in transformers: a complete model with an adapter in its directory is the base.
        if locate::has_own_weights(directory) {
            return Ok(here(directory));
        }
        let Some(named) = &config.base else {
            let problem = "names no base; --base names it";
            return Err(Error::config(
                config.path(),
                "base_model_name_or_path",
                problem,
            ));
        };
        let path = Path::new(named);
        let candidates = [directory.join(path), directory.join("..").join(path)];
        if !path.exists() && path.is_relative() {
            if let Some(found) = candidates.iter().find(|path| path.exists()) {
                return Ok(here(found));
            }
            // The directory may have been moved together with its base.
            let moved = path.file_name().map(|name| directory.join("..").join(name));
            if named.contains("./")
                && let Some(found) = moved.filter(|path| locate::has_own_weights(path))
            {
                return Ok(here(&found));
            }
        }
        let target = match &config.revision {
            Some(revision) if !path.exists() => PathBuf::from(format!("{named}@{revision}")),
            _ => path.to_path_buf(),
        };
        self.hub.find(&target).map_err(|e| {
            let problem = format!("is an adapter, and its base {named} cannot be opened ({e}); --base names another place");
            Error::file(directory, problem)
        })
    }

    /// Opens a directory or a weight file.
    fn open_model(&self, found: &Found, part: Option<&str>) -> Result<Checkpoint> {
        let path = &found.path;
        let located = match (path.is_dir(), &self.weights) {
            (true, Some(weights)) => {
                let file = path.join(weights);
                if !file.exists() {
                    let meant = path_meant(&file);
                    let problem = format!("no such file{meant}; --weights names it");
                    return Err(Error::file(&file, problem));
                }
                Located {
                    directory: path.clone(),
                    weights: locate::of_file(&file)?,
                }
            }
            (true, None) => locate::weights_in(path)?,
            (false, None) => Located {
                directory: directory_of(path),
                weights: locate::of_file(path)?,
            },
            (false, Some(_)) => {
                let problem = "found a file; --weights chooses a file of a directory";
                return Err(Error::file(path, problem));
            }
        };
        let directory = described_in(&located.directory, path);
        let file = located.weights.first().to_path_buf();
        let described_by = describing(&directory, &file)?;
        let settings = if self.ignores_settings {
            Settings::of_command_line(&self.set)
        } else {
            Settings::read(&with_settings(&directory), &self.set)?
        };
        let opened = match Format::of(&file)? {
            format
                if part.is_some() && !matches!(format, Format::Pytorch | Format::Distributed) =>
            {
                let part = part.unwrap_or_default();
                let problem = format!(
                    "only a file of torch.save holds models of several names; leave out #{part}"
                );
                Err(Error::file(&file, problem))
            }
            Format::Gguf => open_gguf(&located.weights, &directory),
            format => open_weights(format, &located.weights, &directory, part),
        };
        // A file that is being written may look damaged, so a change is reported first.
        described_by.iter().try_for_each(DataFile::unchanged)?;
        let mut checkpoint = Checkpoint {
            described_by,
            ..opened?
        };
        checkpoint.tensors.unchanged()?;
        // A bare file, and one of several models in a directory, is named after the file.
        if let Some(name) = &found.name {
            checkpoint.name = name.clone();
        } else if let Some(part) = part {
            checkpoint.name = format!("{}#{part}", checkpoint.name);
        } else if path.is_dir() && self.weights.is_none() && Format::of(&file)? != Format::Gguf {
            checkpoint.name = name_of(path);
        }
        if located.directory != *path && path.is_dir() {
            let inside = located
                .directory
                .strip_prefix(path)
                .unwrap_or(&located.directory);
            checkpoint
                .remarks
                .push(format!("opened {} of {}", inside.display(), path.display()));
        }
        let around = [
            Some(located.directory.as_path()),
            located.directory.parent(),
        ];
        if let Some(pooling) = around.into_iter().flatten().find_map(sentence::pooling) {
            let said = format!("sentence-transformers takes the last states further: {pooling}");
            checkpoint.remarks.push(said);
            checkpoint.knobs.push(Knob {
                name: "pooling",
                value: pooling,
                origin: Origin::Derived(sentence::MODULES.to_owned()),
            });
        }
        let given = self.tokenizer.as_deref();
        chosen_tokenizer::choose(&mut checkpoint, given, (&directory, &file), &settings)?;
        settings.rename(&mut checkpoint.tensors)?;
        checkpoint.settings = settings;
        // Also files that this command may not need, such as a tokenizer when ids are given.
        checkpoint.files().into_iter().for_each(will_read);
        Ok(checkpoint)
    }
}

/// Finds the directory with the settings of a checkpoint: its own, or one above it that describes all steps.
pub(super) fn with_settings(directory: &Path) -> PathBuf {
    let own = std::iter::once(directory.to_path_buf());
    own.chain(above_step(directory))
        .find(|directory| directory.join(settings::FILE).is_file())
        .unwrap_or_else(|| directory.to_path_buf())
}

/// Finds the directory of the files that describe the weights: their own, or one above it, up to the opened directory or the
/// directory of all steps.
fn described_in(directory: &Path, opened: &Path) -> PathBuf {
    let mut above = directory.ancestors();
    let has =
        |directory: &&Path| directory.join(CONFIG).is_file() || directory.join(PARAMS).is_file();
    let inside = above.by_ref().take_while(|path| path.starts_with(opened));
    if let Some(described) = inside.into_iter().find(has) {
        return described.to_path_buf();
    }
    let steps = above_step(directory);
    let described = steps.iter().map(PathBuf::as_path).find(has);
    described.unwrap_or(directory).to_path_buf()
}

/// Opens the files that describe the weights, to notice if another save replaces them.
fn describing(directory: &Path, file: &Path) -> Result<Vec<DataFile>> {
    let is_index = file.extension().is_some_and(|ending| ending == "json");
    let files = [CONFIG, PARAMS, MODEL_CONFIG].map(|name| directory.join(name));
    let settings = with_settings(directory).join(settings::FILE);
    let files = files.into_iter().chain([settings]);
    let all = files.chain(is_index.then(|| file.to_path_buf()));
    all.filter(|path| path.is_file())
        .map(|path| DataFile::open_as(&path, "a file"))
        .collect()
}

/// Returns the name of a directory, even if it is given as `.`.
fn name_of(directory: &Path) -> String {
    let whole = directory.canonicalize().ok();
    let name = whole.and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| directory.display().to_string())
}

fn open_gguf(weights: &Weights, directory: &Path) -> Result<Checkpoint> {
    let file = weights.first();
    let opened = match weights {
        Weights::Shards(files) => gguf::open_parts(files)?,
        _ => gguf::open_file(file)?,
    };
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
        remarks: opened.remarks,
        name: stem(file),
        config: opened.config,
        tensors: opened.tensors,
        tokenizer,
        plain_values: Map::new(),
        settings: Settings::default(),
        unread: Vec::new(),
        sees: false,
        knobs: Vec::new(),
        described_by: Vec::new(),
    })
}

fn stem(file: &Path) -> String {
    let name = file.file_stem().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Refuses safetensors that the TensorFlow classes of transformers wrote: names and orders of axes are not PyTorch's.
fn refuse_of_tensorflow(tensors: &Tensors, file: &Path) -> Result<()> {
    let mut formats = tensors.metadata().iter().map(|said| said.get("format"));
    if formats.any(|format| format.is_some_and(|format| format == "tf")) {
        let problem = "holds weights of a TensorFlow class, which are not read; save the model from its PyTorch class \
             (transformers 4: AutoModel.from_pretrained(DIR, from_tf=True).save_pretrained(OUT))";
        return Err(Error::file(file, problem));
    }
    Ok(())
}

fn open_weights(
    format: Format,
    weights: &Weights,
    directory: &Path,
    part: Option<&str>,
) -> Result<Checkpoint> {
    let file = weights.first();
    let config_path = directory.join(CONFIG);
    let config = if config_path.exists() {
        Config::read(&config_path)?
    } else {
        Config::absent(file)
    };
    let alone = |tensors: Tensors| StateDict {
        tensors,
        plain_values: Map::new(),
    };
    let StateDict {
        mut tensors,
        mut plain_values,
    } = match (format, weights) {
        (Format::Pytorch, Weights::Slices(files)) => slices::joined(
            files,
            files
                .iter()
                .map(|file| pytorch::open_file(file))
                .collect::<Result<_>>()?,
        )?,
        (Format::Safetensors, Weights::Slices(files)) => {
            let open = |file: &PathBuf| safetensors::open_file(file).map(alone);
            slices::joined(files, files.iter().map(open).collect::<Result<_>>()?)?
        }
        (Format::Pytorch, Weights::Shards(files)) => pytorch::open_files(files)?,
        (Format::Safetensors, Weights::Shards(files)) => alone(safetensors::open_files(files)?),
        (Format::Npz, _) => alone(npz::open_file(file)?),
        (Format::Flax, Weights::Shards(files)) => alone(shards::open_all(files, flax::add)?),
        (Format::Flax, _) => alone(shards::open_all(&[file.to_path_buf()], flax::add)?),
        (Format::Llama2c, _) => {
            let (tensors, header) = llama2c::open_file(file)?;
            let plain_values = Map::from_iter([("header".to_owned(), header.into())]);
            StateDict {
                tensors,
                plain_values,
            }
        }
        (Format::Safetensors, _) => alone(safetensors::open_file(file)?),
        (Format::SafetensorsIndex, _) => alone(safetensors::open_sharded(file)?),
        (Format::PytorchIndex, _) => pytorch::open_sharded(file)?,
        (Format::Distributed, _) => pytorch::open_distributed(file, part)?,
        (Format::Pytorch | Format::Gguf, _) => pytorch::open_part(file, part)?,
    };
    refuse_of_tensorflow(&tensors, file)?;
    if let Some(serde_json::Value::Object(model_args)) = plain_values.get_mut("model_args") {
        llama2c::complete(model_args);
    }
    // Tensors of an unsupported method stay as stored, for inspection; the family refuses them.
    if let Ok(quantisation) = Quantisation::read(&config) {
        packed_bits::combine(&mut tensors, quantisation)?;
        packed::combine(&mut tensors, quantisation)?;
    }
    // A module that was pickled whole contains its configuration.
    let config = match plain_values.remove(pytorch::MODULE_CONFIG) {
        Some(serde_json::Value::Object(values)) if config.is_absent() => {
            Config::from_map(file, values)
        }
        _ => config,
    };
    // This `config.json` may be a trainer's own, or timm's, in terms of their own.
    let is_of_trainer = ["model_type", "architectures"]
        .iter()
        .all(|key| config.get(key).is_none())
        && ["model", "pretrained_cfg"]
            .iter()
            .any(|key| config.get(key).is_some_and(|value| value.is_object()));
    let config = if is_of_trainer {
        plain_values.insert(CONFIG.to_owned(), config.into_values().into());
        Config::absent(file)
    } else {
        config
    };
    let params = directory.join(PARAMS);
    if config.is_absent() && params.is_file() {
        let values: Map<_, _> = Config::read(&params)?.into_values();
        log::debug!("{} stands in for {CONFIG}", params.display());
        plain_values.insert(PARAMS.to_owned(), values.into());
    }
    let settings_of_trainer = directory.join(MODEL_CONFIG);
    if config.is_absent() && settings_of_trainer.is_file() {
        let text = read_text(&settings_of_trainer, CONFIGURATION)?;
        plain_values.insert(MODEL_CONFIG.to_owned(), flat_yaml::read(&text).into());
    }
    let model_type = config.get("model_type").and_then(|v| v.as_str());
    Ok(Checkpoint {
        name: match format {
            Format::Distributed => name_of(&directory_of(file)),
            _ => stem(file),
        },
        tokenizer: TokenizerFile::find(directory, model_type),
        config,
        tensors,
        plain_values,
        settings: Settings::default(),
        remarks: Vec::new(),
        unread: Vec::new(),
        sees: false,
        knobs: Vec::new(),
        described_by: Vec::new(),
    })
}
