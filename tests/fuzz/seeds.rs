//! What mutants are made from: a small sound file, how it is built inside, and what stands beside it.

use std::path::Path;

/// How a file is built, so that a mutation can reach what lies behind its first check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is known of it.
    Bytes,
    /// Lines of text.
    Lines,
    Json,
    /// A length, a JSON header, data.
    Safetensors,
    /// Members that are themselves of a kind: by the ends of their names.
    Zip,
    Npy,
    Pickle,
    /// Fields of protocol buffers.
    Fields,
    /// Text and lists with their lengths before them, as GGUF has them.
    Gguf,
}

/// Where a mutant is written.
#[derive(Debug, Clone)]
pub enum Place {
    /// A name that its reader looks for, written just before it is read.
    Named(&'static str),
    /// Any name with this ending; many are written at once, so that one wait for the clock of file times serves all.
    Ending(&'static str),
}

/// A sound file.
#[derive(Debug, Clone)]
pub struct Seed {
    pub kind: Kind,
    pub place: Place,
    pub bytes: Vec<u8>,
    /// Files beside it, by name.
    pub siblings: Vec<(String, Vec<u8>)>,
}

impl Seed {
    pub fn ending(kind: Kind, ending: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            place: Place::Ending(ending),
            bytes: bytes.into(),
            siblings: Vec::new(),
        }
    }

    pub fn named(kind: Kind, name: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            place: Place::Named(name),
            bytes: bytes.into(),
            siblings: Vec::new(),
        }
    }

    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.siblings.push((name.to_owned(), bytes.into()));
        self
    }

    /// Bytes of the files beside it.
    pub fn n_sibling_bytes(&self) -> usize {
        self.siblings.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// A fixture's bytes.
pub fn fixture(path: &str) -> Vec<u8> {
    let path = testing::root().join("fixtures").join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names in a directory of fixtures that are directories themselves, in order.
pub fn directories(path: &str) -> Vec<String> {
    let path = testing::root().join("fixtures").join(path);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .map(|path| name_of(&path))
        .collect();
    names.sort();
    names
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
