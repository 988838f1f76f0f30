//! GGUF files: one file with configuration, vocabulary and weights, often quantised; tensors get Hugging Face's names.

mod architectures;
mod config;
mod element_types;
mod facts;
mod files;
mod gemma3n;
mod gemma4;
mod header;
mod hybrids;
mod joined;
mod kinds;
mod left_out;
mod llama4;
mod metadata;
mod names;
mod place;
mod rope;
mod special;
mod value;
mod vocabulary;
mod windows;

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

pub(super) use files::file_at;
pub use files::is_gguf;
pub use vocabulary::{Vocabulary, Words};

use self::architectures::{ARCHITECTURES, Architecture};
use self::files::projector_remark;
use self::header::Header;
use self::metadata::Metadata;
use self::place::Placer;
use super::config::Config;
use super::data_file::DataFile;
use super::tensors::Tensors;

/// Kinds of models that files store under another kind's architecture.
const UNSTATED: [&str; 2] = ["bamba", "distilbert"];

/// An open GGUF file: its header is checked, no weight has been read.
#[derive(Debug)]
pub struct Gguf {
    /// In the terms of `config.json`.
    pub config: Config,
    /// Under Hugging Face's names.
    pub tensors: Tensors,
    pub vocabulary: Option<Vocabulary>,
    /// Remarks on settings that the converter omitted and on other files beside this one.
    pub remarks: Vec<String>,
}

/// Lists the readable architectures by their name in files, with the `model_type` of each if it has one.
pub fn architectures() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let stated = ARCHITECTURES.iter().map(|known| known.name);
    stated
        .filter(|name| !UNSTATED.contains(name))
        .map(|name| (name, kinds::Kind::of(name).map(|kind| kind.model_type)))
}

/// Opens one GGUF file.
///
/// # Errors
/// When it cannot be read, its header contradicts its contents, or it is no model of a known architecture.
pub fn open_file(path: &Path) -> Result<Gguf> {
    open(DataFile::open(path)?, &[])
}

/// Opens the parts of one model, in order; the first contains the metadata.
///
/// # Errors
/// As for [`open_file`], and when two of them contain the same tensor.
pub fn open_parts(paths: &[PathBuf]) -> Result<Gguf> {
    match paths {
        [first, others @ ..] => open(DataFile::open(first)?, others),
        [] => Err(Error::file("", "expected a file, found none")),
    }
}

fn open(file: DataFile, others: &[PathBuf]) -> Result<Gguf> {
    let path = file.path().to_path_buf();
    let (Header { entries, tensors }, data) = header::read(&file)?;
    let metadata = Metadata::new(&path, &data, &entries);
    let stated = architecture(&metadata, 1 + others.len())?;
    let mut parts = vec![(file, tensors)];
    for (idx, path) in others.iter().enumerate() {
        let file = DataFile::open(path)?;
        let (Header { entries, tensors }, data) = header::read(&file)?;
        let number = Metadata::new(path, &data, &entries).whole("split.no")?;
        if number.is_some_and(|number| number != idx as u64 + 1) {
            let problem = format!("expected part {}, found another", idx + 1);
            return Err(Error::config(path, "split.no", problem));
        }
        parts.push((file, tensors));
    }
    let architecture = special::corrected_architecture(
        stated,
        &metadata,
        parts.iter().flat_map(|(_, tensors)| tensors),
    );
    let sizes = config::sizes(&metadata, stated.name)?;
    let mut placer = Placer::new(architecture, sizes);
    for (file, tensors) in parts {
        placer.add_file(file, tensors)?;
    }
    let mut named = placer.finish()?;
    special::add_values(&metadata, architecture, sizes, &mut named)?;
    joined::join(&metadata, stated.name, architecture, sizes, &mut named)?;
    let values = config::hugging_face(&metadata, architecture, stated.name, sizes, &named)?;
    special::forget_factors(&mut named);
    let config = Config::from_map(&path, values);
    let left_out = left_out::remark(&config, |key| metadata.get(key).is_some());
    Ok(Gguf {
        remarks: left_out
            .into_iter()
            .chain(projector_remark(&path))
            .collect(),
        config,
        vocabulary: Vocabulary::find(&metadata, &data)?,
        tensors: named,
    })
}

/// Returns the architecture of a file that holds a complete model.
fn architecture(metadata: &Metadata<'_>, n_held: usize) -> Result<&'static Architecture> {
    let path = metadata.path;
    if let Some(n_parts) = metadata
        .whole("split.count")?
        .filter(|n| *n > 1 && *n != n_held as u64)
    {
        let problem = format!(
            "is one of {n_parts} parts of a model, found {n_held}; expected all of them under their own names, or one merged file"
        );
        return Err(Error::file(path, problem));
    }
    if let Some(kind) = metadata
        .word("general.type")?
        .filter(|kind| kind != "model")
    {
        let problem = format!("expected \"model\", found {kind:?}");
        return Err(Error::config(path, "general.type", problem));
    }
    const KEY: &str = "general.architecture";
    let known = || {
        let names: Vec<&str> = architectures().map(|(name, _)| name).collect();
        names.join(", ")
    };
    let Some(name) = metadata.word(KEY)? else {
        let problem = format!("missing, expected one of: {}", known());
        return Err(Error::config(path, KEY, problem));
    };
    let known_by_name = Architecture::named(&name).filter(|known| !UNSTATED.contains(&known.name));
    known_by_name.ok_or_else(|| {
        let problem = format!("{name:?} is not known; known: {}", known());
        Error::config(path, KEY, problem)
    })
}
