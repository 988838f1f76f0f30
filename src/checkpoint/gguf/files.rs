//! Recognising GGUF files, and finding the one that holds a directory's model.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::header::{Header, MAGIC, read};
use super::metadata::Metadata;
use crate::auxiliary_files::is_auxiliary;
use crate::data_file::DataFile;
use crate::shards;

/// Extension of GGUF files.
const ENDING: &str = "gguf";

/// Whether a file is GGUF, by extension or content.
pub fn is_gguf(path: &Path) -> bool {
    path.is_file() && (is_called_gguf(path) || begins_as_gguf(path))
}

/// Whether a file has the extension of GGUF.
fn is_called_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(ENDING))
}

/// Finds the only GGUF model in a directory, by its file or its first part; image projectors are ignored.
///
/// # Errors
/// When a directory holds several.
pub fn file_at(path: &Path) -> Result<Option<PathBuf>> {
    let mut found = files_in(path);
    found.retain(|file| !is_auxiliary(file));
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

/// Whether a file begins with GGUF's magic number: some programs store such files without the extension.
fn begins_as_gguf(path: &Path) -> bool {
    DataFile::open(path)
        .and_then(|file| file.read(0..MAGIC.len()).map(|found| *found == *MAGIC))
        .unwrap_or(false)
}

/// Builds a remark on an image projector beside a model, if a file is named as one or the only other file is one.
pub(super) fn projector_remark(path: &Path) -> Option<String> {
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

/// Lists files with the extension of GGUF, sorted.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_called_gguf(path))
        .collect();
    found.sort();
    found
}

/// Whether a file is an image projector, by its name or metadata.
fn is_projector(path: &Path) -> bool {
    is_called_projector(path) || says_projector(path).unwrap_or(false)
}

fn is_called_projector(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.to_lowercase().contains("mmproj")
}

fn says_projector(path: &Path) -> Result<bool> {
    let file = DataFile::open(path)?;
    let (Header { entries, .. }, data) = read(&file)?;
    let metadata = Metadata::new(path, &data, &entries);
    let kind = metadata.word("general.type")?;
    let architecture = metadata.word("general.architecture")?;
    Ok(kind.as_deref() == Some("mmproj") || architecture.as_deref() == Some("clip"))
}
