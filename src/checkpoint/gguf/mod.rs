//! GGUF files: one file with configuration, vocabulary and weights, often quantised; tensors get Hugging Face's names.

mod architectures;
mod config;
mod element_types;
mod facts;
mod files;
mod gemma2;
mod gemma3n;
mod gemma4;
mod header;
mod hybrids;
mod left_out;
mod llama4;
mod metadata;
mod names;
mod place;
mod rework;
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

use self::architectures::{Architecture, Quirk};
use self::facts::Facts;
use self::files::projector_remark;
use self::header::Header;
use self::metadata::Metadata;
use self::place::Placer;
use super::config::Config;
use super::data_file::DataFile;
use super::tensors::Tensors;

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

/// Whether files of an architecture pair neighbouring dimensions of queries and keys where transformers pairs halves; `None` if the
/// architecture is unknown.
pub fn alternates_halves(architecture: &str) -> Option<bool> {
    let found = Architecture::named(architecture)?;
    Some(found.has(Quirk::HalvesAlternate))
}

/// Lists the readable architectures by their name in files, with the `model_type` of each if it differs from the name.
pub fn architectures() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let all = Architecture::all().into_iter();
    all.map(|known| (known.name, known.model_type))
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
    let has = |ending: &str| {
        let mut all = parts.iter().flat_map(|(_, tensors)| tensors);
        all.any(|tensor| tensor.name.ends_with(ending))
    };
    let states = |tail: &str| metadata.get(&format!("{}.{tail}", stated.name)).is_some();
    let architecture = stated.meant(&has, &states);
    let sizes = config::sizes(&metadata, stated)?;
    let mut placer = Placer::new(architecture, sizes);
    for (file, tensors) in parts {
        placer.add_file(file, tensors)?;
    }
    let mut tensors = placer.finish();
    if let Some(rework) = architecture.rework {
        rework(&metadata, sizes, &mut tensors)?;
    }
    let facts = Facts {
        metadata: &metadata,
        prefix: stated.name,
        sizes,
        tensors: &tensors,
    };
    let config = Config::from_map(&path, config::hugging_face(architecture, &facts)?);
    let left_out = left_out::remark(architecture.left_out, &facts, &config);
    rope::forget_factors(&mut tensors);
    Ok(Gguf {
        remarks: left_out
            .into_iter()
            .chain(projector_remark(&path))
            .collect(),
        config,
        vocabulary: Vocabulary::find(&metadata, &data)?,
        tensors,
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
    Architecture::named(&name).ok_or_else(|| {
        let problem = format!("{name:?} is not known; known: {}", known());
        Error::config(path, KEY, problem)
    })
}
