//! The tokenizer of a GGUF file, from the vocabulary in its header.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::{Value, json};

use super::byte_pairs::{assemble, template};
use super::cuts::Cut;
use super::sentence_piece::{
    Algorithm, Encoder, Kind, Mark, Marks, Model, Numbering, Parts, Piece,
};
use super::special::Token;
use super::{Inner, PromptForm, Tokenizer, stored};

/// The values under `tokenizer.ggml`; absent flags have the default of the tokenizer's kind.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// `gpt2`, `llama`, `t5`, `bert` or `gemma4`.
    pub model: String,
    /// The way to split text into words, for `gpt2`.
    pub pre: Option<String>,
    pub tokens: Vec<String>,
    pub scores: Vec<f32>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty if the file has none.
    pub token_types: Vec<i32>,
    /// Pairs of tokens, separated by a blank.
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    /// Tokens before and after a text of word pieces.
    pub cls: Option<u32>,
    pub sep: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
    pub remove_extra_whitespaces: bool,
    /// Whether word pieces are lowercased and accents stripped; `None` for `strip_accents` means as `lowercase`.
    pub lowercase: bool,
    pub strip_accents: Option<bool>,
    /// The replacement table of a `t5` vocabulary; empty if the file has none.
    pub precompiled_charsmap: Vec<u8>,
}

/// Makes a tokenizer from the stored vocabulary. If that fails, returns the reason, because the weights are usable without it.
pub fn open_stored(path: &Path, stored: &attnscope_checkpoint::gguf::Vocabulary) -> PromptForm {
    stored_form(path, stored).unwrap_or_else(|error| {
        let reason = match error {
            Error::Config { key, problem, .. } => format!("{key}: {problem}"),
            other => other.to_string(),
        };
        PromptForm::Ids(format!("the GGUF vocabulary is not whole: {reason}"))
    })
}

/// Absent values have llama.cpp's defaults.
fn stored_form(path: &Path, stored: &attnscope_checkpoint::gguf::Vocabulary) -> Result<PromptForm> {
    // Defaults by kind: whether a text begins and ends with a token, and whether a blank is added before it.
    let [begins, ends, leads] = match stored.model.as_str() {
        "llama" => [true, false, true],
        "gpt2" => {
            let cut = stored.pre.as_deref().and_then(Cut::named);
            [cut.is_some_and(|cut| cut.begins), false, false]
        }
        "t5" => [false, true, true],
        "bert" => [true, true, false],
        "gemma4" => [false, false, false],
        other => {
            return Ok(PromptForm::Ids(format!(
                "the GGUF vocabulary {other:?} is not known here"
            )));
        }
    };
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
        cls: stored.cls,
        sep: stored.sep,
        add_bos: stored.add_bos.unwrap_or(begins),
        add_eos: stored.add_eos.unwrap_or(ends),
        add_space_prefix: stored.add_space_prefix.unwrap_or(leads),
        remove_extra_whitespaces: stored.remove_extra_whitespaces.unwrap_or(false),
        lowercase: stored.lowercase.unwrap_or(true),
        strip_accents: stored.strip_accents,
        precompiled_charsmap: lists.charsmap,
    };
    open(path, &vocabulary)
}

/// Makes a tokenizer from a vocabulary.
///
/// # Errors
/// When its lists contradict each other.
pub fn open(path: &Path, vocabulary: &Vocabulary) -> Result<PromptForm> {
    let kinds = kinds(path, vocabulary)?;
    for (key, id) in [
        ("bos", vocabulary.bos),
        ("eos", vocabulary.eos),
        ("unknown", vocabulary.unk),
        ("cls", vocabulary.cls),
        ("seperator", vocabulary.sep),
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
        "bert" => word_pieces(path, vocabulary, &kinds),
        "gemma4" => marked_pairs(path, vocabulary, &kinds),
        other => Ok(PromptForm::Ids(format!(
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

fn byte_pairs(path: &Path, vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<PromptForm> {
    let Some(cut) = vocabulary.pre.as_deref().and_then(Cut::named) else {
        let pre = vocabulary.pre.as_deref().unwrap_or("none");
        return Ok(PromptForm::Ids(format!(
            "the GGUF vocabulary cuts words by {pre:?}, a pattern not known here"
        )));
    };
    let Lists {
        vocab,
        merges,
        added,
    } = Lists::of(path, vocabulary, kinds)?;
    if merges.is_empty() && cut.keeps_whole {
        let pre = vocabulary.pre.as_deref().unwrap_or_default();
        return Ok(PromptForm::Ids(format!(
            "the GGUF vocabulary ({pre}) lists no merges, without which its words are not known"
        )));
    }
    let (before, after) = around(vocabulary);
    let pair = |id: u32| (vocabulary.tokens[id as usize].clone(), id);
    let model = json!({
        "type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": cut.keeps_whole,
    });
    let ends = template(before.map(pair), after.map(pair));
    let pre_tokenizer = cut.pre_tokenizer(vocabulary.add_space_prefix);
    let value = assemble(&cut.normalizer(), &pre_tokenizer, &added, ends, model);
    let pre = vocabulary.pre.as_deref().unwrap_or_default();
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(path, &value)?),
        source_name: format!("GGUF vocabulary (byte-level BPE, {pre})"),
        target: None,
    }))
}

/// Parts of a byte-pair tokenizer.
struct Lists<'a> {
    vocab: BTreeMap<&'a str, u32>,
    merges: Vec<[&'a str; 2]>,
    /// Tokens matched in a text before it is split.
    added: Vec<Value>,
}

impl<'a> Lists<'a> {
    fn of(path: &Path, vocabulary: &'a Vocabulary, kinds: &[Kind]) -> Result<Self> {
        let mut vocab: BTreeMap<&'a str, u32> = BTreeMap::new();
        for (idx, token) in vocabulary.tokens.iter().enumerate() {
            if let Some(other) = vocab.insert(token, idx as u32) {
                let problem = format!("tokens {other} and {idx} are both {token:?}");
                return Err(Error::config(path, "tokenizer.ggml.tokens", problem));
            }
        }
        let mut merges = Vec::new();
        for (idx, merge) in vocabulary.merges.iter().enumerate() {
            // The first token may begin with a blank.
            let blank = merge.char_indices().skip(1).find(|(_, c)| *c == ' ');
            let Some((a, b)) = blank.map(|(at, _)| (&merge[..at], &merge[at + 1..])) else {
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
        Ok(Self {
            vocab,
            merges,
            added,
        })
    }
}

/// Gemma 4's byte pairs: the text is not split, blanks become `▁`, and characters without a token become bytes.
fn marked_pairs(path: &Path, vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<PromptForm> {
    const MARK: &str = "\u{2581}";
    let Lists {
        vocab,
        merges,
        added,
    } = Lists::of(path, vocabulary, kinds)?;
    let (before, after) = around(vocabulary);
    let pair = |id: u32| (vocabulary.tokens[id as usize].clone(), id);
    let unknown = vocabulary.unk.map(|id| &vocabulary.tokens[id as usize]);
    let model = json!({
        "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": unknown, "fuse_unk": true, "byte_fallback": true,
        "ignore_merges": false,
    });
    let ends = template(before.map(pair), after.map(pair));
    let marks = json!({"type": "Replace", "pattern": {"String": " "}, "content": MARK});
    let mut value = assemble(&marks, &Value::Null, &added, ends, model);
    let blanks = json!({"type": "Replace", "pattern": {"String": MARK}, "content": " "});
    let decoders = [
        blanks,
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    value["decoder"] = json!({"type": "Sequence", "decoders": decoders});
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(path, &value)?),
        source_name: "GGUF vocabulary (BPE of characters)".to_owned(),
        target: None,
    }))
}

/// Word pieces: those that begin a word are stored with a mark, the others without.
fn word_pieces(path: &Path, vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<PromptForm> {
    const BEGINS: char = '\u{2581}';
    const INSIDE: &str = "##";
    let tokens = vocabulary.tokens.iter().zip(kinds).enumerate();
    let mut vocab: BTreeMap<String, u32> = BTreeMap::new();
    let mut added = Vec::new();
    for (idx, (token, kind)) in tokens {
        let is_special = matches!(kind, Kind::Control | Kind::Unknown)
            || token.starts_with('[') && token.ends_with(']') && token.len() > 2;
        let text = match token.strip_prefix(BEGINS) {
            Some(text) => text.to_owned(),
            None if is_special => token.clone(),
            None => format!("{INSIDE}{token}"),
        };
        if is_special {
            added.push(Token::special(&text).json(idx as u32));
        }
        // For a repeated token, the last index counts, as in a list of word pieces.
        vocab.insert(text, idx as u32);
    }
    let special = |stored: Option<u32>, text: &str| -> Result<(String, u32)> {
        let id = stored.or_else(|| vocab.get(text).copied());
        let found = id.and_then(|id| Some((vocabulary.tokens.get(id as usize)?.clone(), id)));
        found.ok_or_else(|| {
            let problem = format!("expected {text} among the tokens, found none");
            Error::config(path, "tokenizer.ggml.tokens", problem)
        })
    };
    let unknown = special(vocabulary.unk, "[UNK]")?;
    let before = special(vocabulary.cls.or(vocabulary.bos), "[CLS]")?;
    let after = special(vocabulary.sep.or(vocabulary.eos), "[SEP]")?;
    let ends = template(
        Some(before).filter(|_| vocabulary.add_bos),
        Some(after).filter(|_| vocabulary.add_eos),
    );
    let value = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": vocabulary.strip_accents, "lowercase": vocabulary.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": ends,
        "decoder": {"type": "WordPiece", "prefix": INSIDE, "cleanup": false},
        "model": {
            "type": "WordPiece", "unk_token": unknown.0, "continuing_subword_prefix": INSIDE,
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    });
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(path, &value)?),
        source_name: "GGUF vocabulary (word pieces)".to_owned(),
        target: None,
    }))
}

/// The tokens before and after a text, if the file asks for them.
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
) -> Result<PromptForm> {
    let (n, found) = (vocabulary.tokens.len(), vocabulary.scores.len());
    if found != n {
        let problem = format!("expected {n} values, one per token, found {found}");
        return Err(Error::config(path, "tokenizer.ggml.scores", problem));
    }
    if vocabulary.token_types.is_empty() {
        return Ok(PromptForm::Ids(
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
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Pieces(Box::new(encoder)),
        source_name: format!("GGUF vocabulary (SentencePiece {how})"),
        target: None,
    }))
}
