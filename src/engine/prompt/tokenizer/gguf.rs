//! The vocabulary inside a GGUF file, as the reader of such files hands it over.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::byte_pairs::{Words, assemble, template};
use super::sentence_piece::{
    Algorithm, Encoder, Kind, Mark, Marks, Model, Numbering, Parts, Piece,
};
use super::special::Token;
use super::{Inner, Reading, Tokenizer, stored};
use crate::checkpoint::gguf;
use crate::error::{Error, Result};

/// What the keys under `tokenizer.ggml` say; flags that a file leaves out hold their kind's default.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// `gpt2`, `llama` or `t5`.
    pub model: String,
    /// How a text is cut into words, for `gpt2`.
    pub pre: Option<String>,
    pub tokens: Vec<String>,
    pub scores: Vec<f32>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty where the file has none.
    pub token_types: Vec<i32>,
    /// Two tokens with a blank between them.
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
    pub remove_extra_whitespaces: bool,
    /// The table of replacements of a `t5` vocabulary; empty where the file has none.
    pub precompiled_charsmap: Vec<u8>,
}

/// Makes a tokenizer of the vocabulary as the file stores it, or says why not: the weights beside it serve all the same.
pub fn open_stored(path: &Path, stored: &gguf::Vocabulary) -> Reading {
    stored_reading(path, stored).unwrap_or_else(|error| {
        let reason = match error {
            Error::Config { key, problem, .. } => format!("{key}: {problem}"),
            other => other.to_string(),
        };
        Reading::Ids(format!("the GGUF vocabulary is not whole: {reason}"))
    })
}

/// What a file leaves out is as llama.cpp takes it.
fn stored_reading(path: &Path, stored: &gguf::Vocabulary) -> Result<Reading> {
    let is_pieces = match stored.model.as_str() {
        "llama" => true,
        "gpt2" => false,
        other => {
            return Ok(Reading::Ids(format!(
                "the GGUF vocabulary {other:?} is not known here"
            )));
        }
    };
    // Llama 3's files leave out that a text begins with a token.
    let is_llama3 = matches!(words(stored.pre.as_deref()), Some((Words::Llama3, true)));
    let lists = stored.decode()?;
    let vocabulary = Vocabulary {
        model: stored.model.clone(),
        pre: stored.pre.clone(),
        tokens: lists.tokens,
        scores: lists.scores.unwrap_or_default(),
        token_types: lists.token_types.unwrap_or_default(),
        merges: lists.merges.unwrap_or_default(),
        bos: stored.bos,
        eos: stored.eos,
        unk: stored.unk,
        add_bos: stored.add_bos.unwrap_or(is_pieces || is_llama3),
        add_eos: stored.add_eos.unwrap_or(false),
        add_space_prefix: stored.add_space_prefix.unwrap_or(is_pieces),
        remove_extra_whitespaces: false,
        precompiled_charsmap: Vec::new(),
    };
    open(path, &vocabulary)
}

/// Makes a tokenizer of it.
///
/// # Errors
/// When its lists do not fit each other.
pub fn open(path: &Path, vocabulary: &Vocabulary) -> Result<Reading> {
    let kinds = kinds(path, vocabulary)?;
    for (key, id) in [
        ("bos", vocabulary.bos),
        ("eos", vocabulary.eos),
        ("unknown", vocabulary.unk),
    ] {
        if let Some(id) = id.filter(|id| *id as usize >= vocabulary.tokens.len()) {
            let n = vocabulary.tokens.len();
            let problem = format!("expected one of {n} tokens, found the id {id}");
            return Err(Error::config(
                path,
                format!("tokenizer.ggml.{key}_token_id"),
                problem,
            ));
        }
    }
    match vocabulary.model.as_str() {
        "gpt2" => byte_pairs(path, vocabulary, &kinds),
        "llama" => pieces(path, vocabulary, &kinds, Algorithm::Merges),
        "t5" => pieces(path, vocabulary, &kinds, Algorithm::Unigram),
        other => Ok(Reading::Ids(format!(
            "the GGUF vocabulary {other:?} is not known here"
        ))),
    }
}

fn kinds(path: &Path, vocabulary: &Vocabulary) -> Result<Vec<Kind>> {
    let n = vocabulary.tokens.len();
    if n == 0 {
        return Err(Error::config(
            path,
            "tokenizer.ggml.tokens",
            "expected tokens, found none",
        ));
    }
    if vocabulary.token_types.is_empty() {
        return Ok(vec![Kind::Normal; n]);
    }
    let found = vocabulary.token_types.len();
    if found != n {
        let problem = format!("expected {n} values, one per token, found {found}");
        return Err(Error::config(path, "tokenizer.ggml.token_type", problem));
    }
    let kind = |number: &i32| {
        let kind = u64::try_from(*number).ok().and_then(Kind::of);
        kind.ok_or_else(|| {
            Error::config(
                path,
                "tokenizer.ggml.token_type",
                format!("the unknown type {number}"),
            )
        })
    };
    vocabulary.token_types.iter().map(kind).collect()
}

/// The ways to cut words whose patterns are known; and whether a whole word that is a token is taken without merging.
fn words(pre: Option<&str>) -> Option<(Words, bool)> {
    Some(match pre? {
        "gpt-2" | "gpt2" | "phi-2" => (Words::Gpt2, false),
        "qwen2" => (Words::Qwen2, false),
        "llama-bpe" | "llama3" | "llama-v3" => (Words::Llama3, true),
        "smaug-bpe" => (Words::Llama3, false),
        _ => return None,
    })
}

fn byte_pairs(path: &Path, vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<Reading> {
    let Some((words, ignores_merges)) = words(vocabulary.pre.as_deref()) else {
        let pre = vocabulary.pre.as_deref().unwrap_or("none");
        return Ok(Reading::Ids(format!(
            "the GGUF vocabulary cuts words by {pre:?}, a pattern not known here"
        )));
    };
    let mut vocab: BTreeMap<&str, u32> = BTreeMap::new();
    for (idx, token) in vocabulary.tokens.iter().enumerate() {
        if let Some(other) = vocab.insert(token, idx as u32) {
            let problem = format!("tokens {other} and {idx} are both {token:?}");
            return Err(Error::config(path, "tokenizer.ggml.tokens", problem));
        }
    }
    let mut merges = Vec::new();
    for (idx, merge) in vocabulary.merges.iter().enumerate() {
        let Some((a, b)) = merge.split_once(' ') else {
            let problem = format!("merge {idx}: expected two tokens, found {merge:?}");
            return Err(Error::config(path, "tokenizer.ggml.merges", problem));
        };
        merges.push([a, b]);
    }
    let marked = kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| matches!(kind, Kind::Control | Kind::UserDefined));
    let added: Vec<Value> = marked
        .map(|(idx, kind)| {
            let token = Token {
                special: *kind == Kind::Control,
                ..Token::special(&vocabulary.tokens[idx])
            };
            token.json(idx as u32)
        })
        .collect();
    let (before, after) = around(vocabulary);
    let pair = |id: u32| (vocabulary.tokens[id as usize].clone(), id);
    let model = json!({
        "type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": ignores_merges,
    });
    let ends = template(before.map(pair), after.map(pair));
    let value = assemble(words, vocabulary.add_space_prefix, &added, ends, model);
    let pre = vocabulary.pre.as_deref().unwrap_or_default();
    Ok(Reading::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(path, &value)?),
        source_name: format!("GGUF vocabulary (byte-level BPE, {pre})"),
        target: None,
    }))
}

/// The tokens before and after a text, where the file asks for them.
fn around(vocabulary: &Vocabulary) -> (Option<u32>, Option<u32>) {
    (
        vocabulary.bos.filter(|_| vocabulary.add_bos),
        vocabulary.eos.filter(|_| vocabulary.add_eos),
    )
}

fn pieces(
    path: &Path,
    vocabulary: &Vocabulary,
    kinds: &[Kind],
    algorithm: Algorithm,
) -> Result<Reading> {
    let (n, found) = (vocabulary.tokens.len(), vocabulary.scores.len());
    if found != n {
        let problem = format!("expected {n} values, one per token, found {found}");
        return Err(Error::config(path, "tokenizer.ggml.scores", problem));
    }
    if vocabulary.token_types.is_empty() {
        return Ok(Reading::Ids(
            "the GGUF vocabulary does not say which tokens are text".to_owned(),
        ));
    }
    let entries = vocabulary.tokens.iter().zip(&vocabulary.scores).zip(kinds);
    let list: Vec<Piece> = entries
        .map(|((text, score), kind)| Piece {
            text: text.clone(),
            score: *score,
            kind: *kind,
        })
        .collect();
    let byte_fallback = kinds.contains(&Kind::Byte);
    let model = Model::new(Parts {
        pieces: list,
        algorithm,
        byte_fallback,
        charsmap: &vocabulary.precompiled_charsmap,
        dummy_prefix: vocabulary.add_space_prefix,
        collapse_blanks: vocabulary.remove_extra_whitespaces,
    })
    .map_err(|problem| Error::config(path, "tokenizer.ggml.tokens", problem))?;
    let controls = kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| **kind == Kind::Control);
    let marks = controls.map(|(idx, _)| Mark {
        text: vocabulary.tokens[idx].clone(),
        id: idx as u32,
        takes_left: false,
        takes_right: false,
    });
    let (before, after) = around(vocabulary);
    let encoder = Encoder {
        before: before.into_iter().collect(),
        after: after.into_iter().collect(),
        marks: Marks::new(marks)
            .map_err(|problem| Error::config(path, "tokenizer.ggml.tokens", problem))?,
        every_stretch_begins: true,
        ends_once: false,
        numbering: Numbering::Same,
        model,
    };
    let how = match algorithm {
        Algorithm::Unigram => "unigram",
        Algorithm::Merges => "BPE",
    };
    Ok(Reading::Tokenizer(Tokenizer {
        inner: Inner::Pieces(Box::new(encoder)),
        source_name: format!("GGUF vocabulary (SentencePiece {how})"),
        target: None,
    }))
}
