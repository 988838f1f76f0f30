//! Tokenizers: text → ids and ids → labels, with any of the vocabulary formats that checkpoints use.

mod byte_pairs;
mod characters;
mod cuts;
mod gguf;
mod library;
mod limited;
mod sentence_piece;
mod special;
mod stored;
mod token;
mod word_pieces;

use std::path::Path;
use std::sync::LazyLock;

use attnscope_checkpoint::{TokenizerFile, VOCABULARY, read_whole};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

pub use gguf::Vocabulary;
pub use token::Token;

use super::limits::Limits;

/// Turns text into ids and ids into labels.
pub struct Tokenizer {
    inner: Inner,
    source_name: String,
    /// The decoder's tokenizer, if it differs.
    target: Option<Box<PromptForm>>,
}

enum Inner {
    Library(library::Library),
    Pieces(Box<sentence_piece::Encoder>),
    Characters(characters::Characters),
    Bytes,
}

/// How prompts can be given: as text, or only as ids for some reason.
#[derive(Debug)]
pub enum PromptForm {
    Tokenizer(Tokenizer),
    Ids(String),
}

impl PromptForm {
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match self {
            Self::Tokenizer(tokenizer) => Some(tokenizer),
            Self::Ids(_) => None,
        }
    }

    /// Names the tokenizer's file, or the reason why only ids can be given.
    pub fn describe(&self) -> String {
        match self {
            Self::Tokenizer(tokenizer) => tokenizer.source_name.clone(),
            Self::Ids(reason) => format!("ids only: {reason}"),
        }
    }

    /// The prompt form for the decoder: ids only if the decoder has its own vocabulary and no file contains it.
    pub fn of_target(&self, limits: Limits) -> &Self {
        static OWN: LazyLock<PromptForm> = LazyLock::new(|| {
            PromptForm::Ids(
                "the decoder has a vocabulary of its own, the tokenizer is the encoder's"
                    .to_owned(),
            )
        });
        match (limits.d_vocab_target, self.tokenizer()) {
            (Some(_), Some(tokenizer)) => tokenizer.target.as_deref().unwrap_or(&OWN),
            _ => self,
        }
    }

    /// The text of some ids; without a tokenizer, the ids separated by blanks.
    pub fn text(&self, ids: &[u32]) -> String {
        let labels = || ids.iter().map(|id| self.label(*id)).collect::<Vec<_>>();
        let Some(tokenizer) = self.tokenizer() else {
            return labels().join(" ");
        };
        match &tokenizer.inner {
            Inner::Library(library) => library.text(ids).unwrap_or_else(|| labels().concat()),
            _ => labels().concat(),
        }
    }

    /// The label of an id; without a tokenizer, the id itself.
    pub fn label(&self, id: u32) -> String {
        self.tokenizer()
            .map_or_else(|| id.to_string(), |tokenizer| tokenizer.label(id))
    }
}

impl Tokenizer {
    /// Opens the vocabulary of a checkpoint. If its ids are not certain, returns [`PromptForm::Ids`] with the reason, and never
    /// guesses.
    ///
    /// # Errors
    /// When a file exists but is invalid.
    pub fn open(file: &TokenizerFile) -> Result<PromptForm> {
        let kind = |model_type: &Option<String>| model_type.clone().unwrap_or_default();
        match file {
            TokenizerFile::Missing => Ok(PromptForm::Ids("no tokenizer.json, vocab.json with merges.txt, vocab.txt, SentencePiece model or meta.pkl beside the checkpoint; --tokenizer characters:FILE takes the characters of a training text".to_owned())),
            TokenizerFile::Elsewhere(reason) => Ok(PromptForm::Ids((*reason).to_owned())),
            TokenizerFile::Pair(pair) => {
                let (mut source, target) = (Self::open(&pair[0])?, Self::open(&pair[1])?);
                if let PromptForm::Tokenizer(tokenizer) = &mut source {
                    tokenizer.target = Some(Box::new(target));
                }
                Ok(source)
            }
            TokenizerFile::Characters(path) => characters::open(path),
            TokenizerFile::CharactersOf(path) => {
                let table = attnscope_checkpoint::characters::of_text(path)?;
                Ok(PromptForm::Tokenizer(Self::characters(path, &Value::Object(table))?))
            }
            TokenizerFile::Inside(path, table) => {
                let table = Value::Object(table.as_ref().clone());
                Ok(PromptForm::Tokenizer(Self::characters(path, &table)?))
            }
            TokenizerFile::Bytes => Ok(PromptForm::Tokenizer(Self::bytes())),
            TokenizerFile::Gguf { path, vocabulary } => Ok(gguf::open_stored(path, vocabulary)),
            TokenizerFile::CompiledIn(text) => {
                Self::stored(Path::new("tokenizer.json"), text.as_bytes())
            }
            TokenizerFile::Path(path) => {
                let bytes = read_whole(path, VOCABULARY)?;
                Self::stored(path, &bytes)
            }
            TokenizerFile::BytePairs { vocab, merges, model_type } => {
                byte_pairs::open(vocab, merges, &kind(model_type))
            }
            TokenizerFile::WordPieces { vocab, model_type } => {
                word_pieces::open(vocab, &kind(model_type))
            }
            TokenizerFile::SentencePiece { model, model_type } => {
                sentence_piece::open(model, &kind(model_type))
            }
        }
    }

    fn stored(path: &Path, bytes: &[u8]) -> Result<PromptForm> {
        Ok(PromptForm::Tokenizer(Self {
            inner: Inner::Library(stored::open(path, bytes)?),
            source_name: file_name(path),
            target: None,
        }))
    }

    /// A tokenizer from a map of single characters to ids; `path` is the file that contains it.
    ///
    /// # Errors
    /// When the value is not such a map.
    pub fn characters(path: &Path, stoi: &Value) -> Result<Self> {
        characters::tokenizer(path, stoi)
    }

    /// A tokenizer whose ids are the bytes of the text.
    pub fn bytes() -> Self {
        Self {
            inner: Inner::Bytes,
            source_name: "bytes".to_owned(),
            target: None,
        }
    }

    /// A tokenizer from the vocabulary inside a GGUF file.
    ///
    /// # Errors
    /// When the parts contradict each other.
    pub fn vocabulary(path: &Path, vocabulary: &Vocabulary) -> Result<PromptForm> {
        gguf::open(path, vocabulary)
    }

    /// Name of the source of the ids: `tokenizer.json`, or `vocab.json + merges.txt`.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Ids of a text.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Result<Vec<u32>> {
        let tokens = self.cut(text, special_tokens)?;
        Ok(tokens.into_iter().map(|token| token.id).collect())
    }

    /// Tokens of a text, each with the bytes that it covers.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn cut(&self, text: &str, special_tokens: bool) -> Result<Vec<Token>> {
        match &self.inner {
            Inner::Library(library) => {
                let encoded = library.encode(text, special_tokens);
                encoded.map_err(|problem| {
                    let source = &self.source_name;
                    Error::Prompt(format!("{source} cannot encode the text: {problem}"))
                })
            }
            Inner::Pieces(encoder) => Ok(encoder.encode(text, special_tokens)),
            Inner::Characters(characters) => characters.encode(text),
            Inner::Bytes => Ok(text
                .bytes()
                .enumerate()
                .map(|(at, byte)| Token {
                    id: u32::from(byte),
                    bytes: at..at + 1,
                    is_special: false,
                    is_known: true,
                })
                .collect()),
        }
    }

    /// The text of some ids, without the special tokens around it.
    pub fn text(&self, ids: &[u32]) -> String {
        match &self.inner {
            Inner::Library(library) => library.text(ids).unwrap_or_default(),
            Inner::Pieces(_) => {
                let pieces: String = ids.iter().map(|id| self.label(*id)).collect();
                pieces.trim().to_owned()
            }
            Inner::Characters(_) => ids.iter().map(|id| self.label(*id)).collect(),
            Inner::Bytes => {
                let bytes = ids.iter().filter_map(|id| u8::try_from(*id).ok());
                String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
            }
        }
    }

    /// The vocabulary's spelling of an id; `None` for an unknown id.
    pub fn piece(&self, id: u32) -> Option<String> {
        match &self.inner {
            Inner::Library(library) => library.token(id),
            Inner::Pieces(encoder) => encoder.text_of(id).map(str::to_owned),
            Inner::Characters(characters) => characters.label(id).map(str::to_owned),
            Inner::Bytes => (id < 256).then(|| byte_label(id)),
        }
    }

    /// Whether an id stands for no text, but for the beginning or the end of one, a role or a gap.
    pub fn is_special(&self, id: u32) -> bool {
        match &self.inner {
            Inner::Library(library) => library.is_special(id),
            Inner::Pieces(encoder) => encoder.is_special(id),
            Inner::Characters(characters) => characters.is_special(id),
            Inner::Bytes => false,
        }
    }

    /// The label of an id, including a leading space; the vocabulary's spelling if the id is not text.
    pub fn label(&self, id: u32) -> String {
        match &self.inner {
            Inner::Library(library) => library_label(library, id),
            Inner::Pieces(encoder) => {
                let text = encoder.text_of(id);
                text.map_or_else(|| id.to_string(), |text| text.replace('▁', " "))
            }
            Inner::Characters(characters) => {
                let label = characters.label(id);
                label.map_or_else(|| id.to_string(), str::to_owned)
            }
            Inner::Bytes => byte_label(id),
        }
    }
}

/// An ASCII byte as its character, any other id as a number.
fn byte_label(id: u32) -> String {
    let byte = u8::try_from(id).ok().filter(u8::is_ascii);
    byte.map_or_else(|| id.to_string(), |byte| char::from(byte).to_string())
}

fn library_label(library: &library::Library, id: u32) -> String {
    let Some(stored) = library.token(id) else {
        return id.to_string();
    };
    // SentencePiece writes a leading space as ▁; its decoder would drop it from a lone piece.
    if stored.contains('▁') {
        return stored.replace('▁', " ");
    }
    library.decoded(id).unwrap_or(stored)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tokenizer");
        shown
            .field("source", &self.source_name)
            .finish_non_exhaustive()
    }
}
