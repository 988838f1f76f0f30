//! Finds the tokenizer files of a checkpoint, and their format.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::characters::table_of;
use super::config::Config;
use super::gguf::Vocabulary;
use super::nearest::path_meant;
use super::pytorch::plain_pickle;
use super::{VOCABULARY, read_text, read_whole};

/// Names of SentencePiece models, in order of preference.
const SENTENCE_PIECE: [&str; 4] = [
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
];

/// The decoder's own vocabulary, beside the encoder's `tokenizer.json`.
const TARGET: &str = "tokenizer_target.json";

/// Keyword for a tokenizer without a file, whose ids are the bytes of the text.
pub const BYTES: &str = "bytes";

/// Keyword before a file of text whose characters are the vocabulary.
pub const CHARACTERS_OF: &str = "characters:";

/// Name of nanoGPT's table of characters.
const CHARACTERS: &str = "meta.pkl";

/// Names of tables of characters that home-made code stores beside its weights.
const TABLES: [&str; 8] = [
    "vocab.json",
    "vocab.pkl",
    "chars.json",
    "chars.pkl",
    "stoi.json",
    "stoi.pkl",
    "meta.json",
    "tokenizer.pkl",
];

/// Location of a checkpoint's tokenizer. Some formats also need the model type, since they leave conventions open.
#[derive(Debug, Clone)]
pub enum TokenizerFile {
    /// A `tokenizer.json`.
    Path(PathBuf),
    CompiledIn(&'static str),
    BytePairs {
        vocab: PathBuf,
        merges: PathBuf,
        model_type: Option<String>,
    },
    WordPieces {
        vocab: PathBuf,
        model_type: Option<String>,
    },
    SentencePiece {
        model: PathBuf,
        model_type: Option<String>,
    },
    /// A table of characters: nanoGPT's `meta.pkl`, another pickle, or JSON.
    Characters(PathBuf),
    /// The characters of a training text, in the order of their code points.
    CharactersOf(PathBuf),
    /// A table of characters stored with the weights in this file.
    Inside(PathBuf, Box<Map<String, Value>>),
    /// The ids are the bytes of the text.
    Bytes,
    /// The encoder's tokenizer, and the decoder's.
    Pair(Box<[TokenizerFile; 2]>),
    /// Inside a GGUF file.
    Gguf {
        path: PathBuf,
        vocabulary: Box<Vocabulary>,
    },
    Missing,
    /// There is none, for this reason.
    Elsewhere(&'static str),
}

impl TokenizerFile {
    /// Lists its files.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            Self::Path(path)
            | Self::Characters(path)
            | Self::CharactersOf(path)
            | Self::Inside(path, _)
            | Self::Gguf { path, .. }
            | Self::SentencePiece { model: path, .. }
            | Self::WordPieces { vocab: path, .. } => vec![path],
            Self::BytePairs { vocab, merges, .. } => vec![vocab, merges],
            Self::Pair(pair) => pair.iter().flat_map(Self::files).collect(),
            Self::CompiledIn(_) | Self::Bytes | Self::Missing | Self::Elsewhere(_) => Vec::new(),
        }
    }

    /// Finds the first known format in a directory.
    pub fn find(directory: &Path, model_type: Option<&str>) -> Self {
        let present = |name: &str| Some(directory.join(name)).filter(|path| path.is_file());
        let model_type = model_type.map(str::to_owned);
        if let Some(path) = present("tokenizer.json") {
            return match present(TARGET) {
                Some(target) => Self::Pair(Box::new([Self::Path(path), Self::Path(target)])),
                None => Self::Path(path),
            };
        }
        if let (Some(vocab), Some(merges)) = (present("vocab.json"), present("merges.txt")) {
            return Self::BytePairs {
                vocab,
                merges,
                model_type,
            };
        }
        if let Some(vocab) = present("vocab.txt") {
            return Self::WordPieces { vocab, model_type };
        }
        let usual = SENTENCE_PIECE.iter().find_map(|name| present(name));
        if let Some(model) = usual {
            return Self::SentencePiece { model, model_type };
        }
        if let Some(path) = present(CHARACTERS) {
            return Self::Characters(path);
        }
        // Configurations of known families come with vocabularies that say more than their characters.
        let mut tables = TABLES.iter().filter_map(|name| present(name));
        if model_type.is_none()
            && let Some(path) = tables.find(|path| is_of_characters(path))
        {
            return Self::Characters(path);
        }
        match sentence_pieces_in(directory).as_slice() {
            [] => Self::Missing,
            [model] => Self::SentencePiece {
                model: model.clone(),
                model_type,
            },
            _ => Self::Elsewhere(
                "several files end in .model or .spm; --tokenizer FILE names the tokenizer",
            ),
        }
    }

    /// Sets the model type, for formats that leave conventions open.
    pub fn set_model_type(&mut self, kind: &str) {
        match self {
            Self::BytePairs { model_type, .. }
            | Self::WordPieces { model_type, .. }
            | Self::SentencePiece { model_type, .. } => *model_type = Some(kind.to_owned()),
            Self::Pair(pair) => pair.iter_mut().for_each(|one| one.set_model_type(kind)),
            _ => {}
        }
    }

    /// Reads the model type from the configuration of a directory.
    pub fn model_type_in(directory: &Path) -> Option<String> {
        let config = Config::read(&directory.join("config.json")).ok()?;
        Some(config.get("model_type")?.as_str()?.to_owned())
    }

    /// Identifies the tokenizer at a path that the user gave: by the file's name, or else by its content.
    ///
    /// # Errors
    /// When there is no such file, or its format is unknown.
    pub fn named(path: &Path, model_type: Option<&str>) -> Result<Self> {
        if path.is_dir() {
            let own_type = Self::model_type_in(path);
            let found = Self::find(path, model_type.or(own_type.as_deref()));
            return match found {
                Self::Missing => Err(Error::file(path, "holds no tokenizer that is known")),
                Self::Elsewhere(reason) => Err(Error::file(path, reason)),
                found => Ok(found),
            };
        }
        if !path.is_file() {
            if path == Path::new(BYTES) {
                return Ok(Self::Bytes);
            }
            let text = path
                .to_str()
                .and_then(|path| path.strip_prefix(CHARACTERS_OF));
            if let Some(text) = text.map(PathBuf::from).filter(|text| text.is_file()) {
                return Ok(Self::CharactersOf(text));
            }
            let problem = format!("no such file{}; --tokenizer names it", path_meant(path));
            return Err(Error::file(path, problem));
        }
        let model_type = model_type.map(str::to_owned);
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let sibling = |name: &str| path.parent().map(|parent| parent.join(name));
        match ending.as_deref() {
            Some("json") if is_of_characters(path) => Ok(Self::Characters(path.to_path_buf())),
            Some("json") if path.file_name().is_some_and(|name| name == "vocab.json") => {
                match sibling("merges.txt").filter(|merges| merges.is_file()) {
                    Some(merges) => Ok(Self::BytePairs {
                        vocab: path.to_path_buf(),
                        merges,
                        model_type,
                    }),
                    None => Err(Error::file(
                        path,
                        "expected merges.txt beside it, found none",
                    )),
                }
            }
            Some("json") => Ok(Self::Path(path.to_path_buf())),
            Some("txt") => Ok(Self::WordPieces {
                vocab: path.to_path_buf(),
                model_type,
            }),
            Some("pkl") => Ok(Self::Characters(path.to_path_buf())),
            Some("model" | "spm") => Ok(Self::SentencePiece {
                model: path.to_path_buf(),
                model_type,
            }),
            _ if begins_as_pieces(path) => Ok(Self::SentencePiece {
                model: path.to_path_buf(),
                model_type,
            }),
            _ => Err(Error::file(
                path,
                "expected tokenizer.json, vocab.json with merges.txt beside it, vocab.txt, a SentencePiece model (.model, .spm) \
                 or meta.pkl, found a file of another kind",
            )),
        }
    }
}

/// Whether a file of JSON or a pickle holds a table of characters.
fn is_of_characters(path: &Path) -> bool {
    let value = match path.extension() {
        Some(ending) if ending == "pkl" => read_whole(path, VOCABULARY)
            .ok()
            .and_then(|bytes| plain_pickle(&bytes, path).ok()),
        _ => read_text(path, VOCABULARY)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok()),
    };
    value.is_some_and(|value: Value| table_of(&value).is_some())
}

/// Lists a directory's SentencePiece models, by extension and content, sorted.
fn sentence_pieces_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
            ending.is_some_and(|e| e == "model" || e == "spm")
                && path.is_file()
                && begins_as_pieces(path)
        })
        .collect();
    found.sort();
    found
}

/// Whether a file begins like a SentencePiece model: with a piece that begins with its text.
fn begins_as_pieces(path: &Path) -> bool {
    use std::io::Read;
    let mut first = [0u8; 3];
    let read = super::open_regular(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first[0] == 0x0A && first[2] == 0x0A
}
