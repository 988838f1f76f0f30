//! Where the vocabulary of a checkpoint lies, and in which form.

use std::path::{Path, PathBuf};

use super::gguf::Vocabulary;

/// What a SentencePiece model is called, in the order of choice.
const SENTENCE_PIECE: [&str; 4] = [
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
];

/// A vocabulary of the decoder's own, beside the encoder's `tokenizer.json`.
const TARGET: &str = "tokenizer_target.json";

/// What nanoGPT calls its table of characters.
const CHARACTERS: &str = "meta.pkl";

/// Where the tokenizer of a checkpoint is to be found; with the kind of model, whose habits some forms leave open.
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
    /// A table of characters, as nanoGPT's `meta.pkl` keeps it.
    Characters(PathBuf),
    /// The encoder's, and the decoder's own.
    Pair(Box<[TokenizerFile; 2]>),
    /// Inside a GGUF file.
    Gguf {
        path: PathBuf,
        vocabulary: Box<Vocabulary>,
    },
    Missing,
    /// There is none, for a reason that is known.
    Elsewhere(&'static str),
}

impl TokenizerFile {
    /// The files it lies in.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            Self::Path(path)
            | Self::Characters(path)
            | Self::Gguf { path, .. }
            | Self::SentencePiece { model: path, .. }
            | Self::WordPieces { vocab: path, .. } => vec![path],
            Self::BytePairs { vocab, merges, .. } => vec![vocab, merges],
            Self::Pair(pair) => pair.iter().flat_map(Self::files).collect(),
            Self::CompiledIn(_) | Self::Missing | Self::Elsewhere(_) => Vec::new(),
        }
    }

    /// The first form that a directory holds.
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
        match SENTENCE_PIECE.iter().find_map(|name| present(name)) {
            Some(model) => Self::SentencePiece { model, model_type },
            None => present(CHARACTERS).map_or(Self::Missing, Self::Characters),
        }
    }
}
