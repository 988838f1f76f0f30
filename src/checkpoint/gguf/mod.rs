//! GGUF files: one file with configuration, vocabulary and weights, often quantised; read under Hugging Face's names.

mod architectures;
mod config;
mod element_types;
mod facts;
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

pub use vocabulary::{Vocabulary, Words};

use self::architectures::{ARCHITECTURES, Architecture};
use self::header::Header;
use self::metadata::Metadata;
use self::place::Placer;
use super::config::Config;
use super::data_file::DataFile;
use super::shards;
use super::tensors::Tensors;
use attnscope_compute::error::{Error, Result};

/// How the names of these files end.
const ENDING: &str = "gguf";

/// Kinds of models that files call by another's name.
const UNSTATED: [&str; 2] = ["bamba", "distilbert"];

/// An open GGUF file: header checked, no weight touched.
#[derive(Debug)]
pub struct Gguf {
    /// In the words of `config.json`.
    pub config: Config,
    /// Under the names that Hugging Face gives them.
    pub tensors: Tensors,
    pub vocabulary: Option<Vocabulary>,
    /// What there is to say: of settings that the converter left out, and of files beside this one.
    pub remarks: Vec<String>,
}

/// The architectures that can be read, as files name them, and the `model_type` of each where there is one.
pub fn architectures() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let stated = ARCHITECTURES.iter().map(|known| known.name);
    stated
        .filter(|name| !UNSTATED.contains(name))
        .map(|name| (name, kinds::Kind::of(name).map(|kind| kind.model_type)))
}

/// Whether a file is one of this format, whatever it is called.
pub fn is_gguf(path: &Path) -> bool {
    path.is_file() && (is_called_gguf(path) || begins_as_gguf(path))
}

fn is_called_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(ENDING))
}

/// The only model of this format in a directory, by its file or the first of its parts; projectors of pictures are none.
///
/// # Errors
/// When a directory holds several.
pub(super) fn file_at(path: &Path) -> Result<Option<PathBuf>> {
    let mut found = files_in(path);
    found.retain(|file| !super::kinds::is_beside_weights(file));
    if found.len() > 1 {
        let is_part = |file: &PathBuf| !shards::set_of(file).is_ok_and(|set| set.is_none());
        found.retain(|file| is_part(file) || !is_projector(file));
    }
    if let Some(first) = found.first()
        && let Some(parts) = shards::set_of(first)?
        && found.iter().all(|file| parts.contains(file))
    {
        return Ok(Some(found.remove(0)));
    }
    if found.len() > 1 {
        let problem = format!(
            "holds {} GGUF files; --weights FILE names the one to open",
            found.len()
        );
        return Err(Error::file(path, problem));
    }
    Ok(found.pop())
}

/// Whether a file says that it is one: some programs keep these files under names of their own.
fn begins_as_gguf(path: &Path) -> bool {
    let magic = header::MAGIC;
    DataFile::open(path)
        .and_then(|file| file.read(0..magic.len()).map(|found| *found == *magic))
        .unwrap_or(false)
}

/// Opens one GGUF file.
///
/// # Errors
/// When it cannot be read, its header lies, or it holds something other than a model of a known architecture.
pub fn open_file(path: &Path) -> Result<Gguf> {
    open(DataFile::open(path)?, &[])
}

/// Opens the parts of one model, in order; the first of them says what the model is.
///
/// # Errors
/// As for [`open_file`], and when a tensor stands in two of them.
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
    let architecture = special::as_meant(
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
            .chain(projector_beside(&path))
            .collect(),
        config,
        vocabulary: Vocabulary::find(&metadata, &data)?,
        tensors: named,
    })
}

/// What there is to say of a projector of pictures beside a model: by its name, or where it is the only other file.
fn projector_beside(path: &Path) -> Option<String> {
    let own = shards::set_of(path).ok().flatten().unwrap_or_default();
    let mut others = files_in(path.parent()?);
    others.retain(|file| file != path && !own.contains(file));
    let found = match others.as_slice() {
        [other] if is_projector(other) => other,
        others => others.iter().find(|file| is_called_projector(file))?,
    };
    let name = found.file_name().unwrap_or_default().to_string_lossy();
    Some(format!(
        "a projector of pictures ({name}) lies beside the model and is left out: the model is read for texts"
    ))
}

/// Files called like one of this format, sorted.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_called_gguf(path))
        .collect();
    found.sort();
    found
}

/// Whether a file holds what turns pictures into tokens, by its name or by what it says of itself.
fn is_projector(path: &Path) -> bool {
    is_called_projector(path) || says_projector(path).unwrap_or(false)
}

fn is_called_projector(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.to_lowercase().contains("mmproj")
}

fn says_projector(path: &Path) -> Result<bool> {
    let file = DataFile::open(path)?;
    let (Header { entries, .. }, data) = header::read(&file)?;
    let metadata = Metadata::new(path, &data, &entries);
    let kind = metadata.word("general.type")?;
    let architecture = metadata.word("general.architecture")?;
    Ok(kind.as_deref() == Some("mmproj") || architecture.as_deref() == Some("clip"))
}

/// The architecture of a file that holds one whole model.
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
