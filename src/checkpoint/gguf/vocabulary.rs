//! The vocabulary in a GGUF file: located when the file is opened, decoded on request.

use std::path::PathBuf;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::metadata::{Metadata, elements};
use super::value::{List, Value};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

/// Position of a file's vocabulary, and the tokenizer settings, which are read at once.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The kind of tokenizer: `llama` (SentencePiece), `gpt2` (byte pairs), `bert`, …
    pub model: String,
    /// How text is cut before byte pairs are merged: `llama-bpe`, `qwen2`, …
    pub pre: Option<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    /// Tokens before and after a text in a WordPiece vocabulary.
    pub cls: Option<u32>,
    pub sep: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether word pieces are lower-case, and whether they are without accents.
    pub lowercase: Option<bool>,
    pub strip_accents: Option<bool>,
    path: PathBuf,
    /// The beginning of the file, which contains the lists.
    data: Arc<[u8]>,
    tokens: List,
    scores: Option<List>,
    token_types: Option<List>,
    merges: Option<List>,
    charsmap: Option<List>,
}

/// The decoded lists of a vocabulary. Except for the merges, each list present has one value per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    /// Text of each id; bytes that are not UTF-8 become U+FFFD.
    pub tokens: Vec<String>,
    pub scores: Option<Vec<f32>>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// Two tokens separated by a space, in the order of merging.
    pub merges: Option<Vec<String>>,
    /// Normalisation table (`precompiled_charsmap`) of a unigram vocabulary; empty if the file has none.
    pub charsmap: Vec<u8>,
}

impl Vocabulary {
    /// Finds the vocabulary; `None` if the file has none.
    ///
    /// # Errors
    /// When a key has the wrong type.
    pub(super) fn find(metadata: &Metadata<'_>, data: &Arc<[u8]>) -> Result<Option<Self>> {
        let Some(tokens) = metadata.list(TOKENS)? else {
            return Ok(None);
        };
        let key = |tail: &str| format!("tokenizer.ggml.{tail}");
        let id = |tail: &str| -> Result<Option<u32>> {
            let key = key(tail);
            let stored = match metadata.get(&key) {
                // Some converters write -1 for no token.
                Some(Value::Signed(..0)) => None,
                _ => metadata.whole(&key)?,
            };
            // An id beyond the vocabulary means no token too: published files have such ids.
            let stored = stored.filter(|id| *id < tokens.len as u64);
            Ok(stored.map(|id| id as u32))
        };
        Ok(Some(Self {
            model: metadata.word(&key("model"))?.unwrap_or_default(),
            pre: metadata.word(&key("pre"))?,
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            unk: id("unknown_token_id")?,
            pad: id("padding_token_id")?,
            cls: id("cls_token_id")?,
            // The format's spelling.
            sep: id("seperator_token_id")?,
            add_bos: metadata.flag(&key("add_bos_token"))?,
            add_eos: metadata.flag(&key("add_eos_token"))?,
            add_space_prefix: metadata.flag(&key("add_space_prefix"))?,
            remove_extra_whitespaces: metadata.flag(&key("remove_extra_whitespaces"))?,
            lowercase: metadata.flag(&key("normalizer.lowercase"))?,
            strip_accents: metadata.flag(&key("normalizer.strip_accents"))?,
            path: metadata.path.to_path_buf(),
            data: data.clone(),
            tokens: tokens.clone(),
            scores: metadata.list(SCORES)?.cloned(),
            token_types: metadata.list(TYPES)?.cloned(),
            merges: metadata.list(MERGES)?.cloned(),
            charsmap: metadata.list(CHARSMAP)?.cloned(),
        }))
    }

    /// Number of tokens, without decoding them.
    pub fn len(&self) -> usize {
        self.tokens.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decodes the lists.
    ///
    /// # Errors
    /// When a list has the wrong type, or not one value per token.
    pub fn decode(&self) -> Result<Words> {
        let data = &self.data;
        let text = |value: Value| match value {
            Value::Text(place) => Some(String::from_utf8_lossy(&data[place]).into_owned()),
            _ => None,
        };
        let score = |value: Value| match value {
            Value::F32(score) => Some(score),
            Value::F64(score) => Some(score as f32),
            _ => None,
        };
        let kind = |value: Value| match value {
            Value::Signed(kind) => i32::try_from(kind).ok(),
            Value::Unsigned(kind) => i32::try_from(kind).ok(),
            _ => None,
        };
        let byte = |value: Value| match value {
            Value::Unsigned(byte) => u8::try_from(byte).ok(),
            Value::Signed(byte) => i8::try_from(byte).ok().map(|byte| byte as u8),
            _ => None,
        };
        Ok(Words {
            tokens: self.all(TOKENS, &self.tokens, "text", text)?,
            scores: self.one_each(SCORES, self.scores.as_ref(), "numbers", score)?,
            token_types: self.one_each(TYPES, self.token_types.as_ref(), "whole numbers", kind)?,
            merges: match &self.merges {
                Some(merges) => Some(self.all(MERGES, merges, "text", text)?),
                None => None,
            },
            charsmap: match &self.charsmap {
                Some(bytes) => self.all(CHARSMAP, bytes, "bytes", byte)?,
                None => Vec::new(),
            },
        })
    }

    fn all<T>(
        &self,
        key: &str,
        list: &List,
        expected: &str,
        decode: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>> {
        elements(&self.path, &self.data, list)?
            .into_iter()
            .map(decode)
            .collect::<Option<Vec<T>>>()
            .ok_or_else(|| {
                let problem = format!("expected a list of {expected}, found other values in it");
                Error::config(&self.path, key, problem)
            })
    }

    fn one_each<T>(
        &self,
        key: &str,
        list: Option<&List>,
        expected: &str,
        decode: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(list) = list else {
            return Ok(None);
        };
        if list.len != self.len() {
            let problem = format!(
                "expected {} values, one per token, found {}",
                self.len(),
                list.len
            );
            return Err(Error::config(&self.path, key, problem));
        }
        self.all(key, list, expected, decode).map(Some)
    }
}
