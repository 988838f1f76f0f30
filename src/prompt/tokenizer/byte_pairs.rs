//! `vocab.json` and `merges.txt`: byte-level BPE as in GPT-2 and its successors.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::{VOCABULARY, read_text, read_whole};
use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::special::{NAMES, Settings, Token};
use super::{Inner, PromptForm, Tokenizer, directory_of, file_name, stored};
use crate::languages::code_of as language_code;

/// How a text is split into words before bytes are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    Gpt2,
    /// Single digits; the text is first normalised to composed characters.
    Qwen2,
}

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Words {
    /// The `pre_tokenizer` in the form of `tokenizer.json`.
    pub fn json(self, prefix_space: bool) -> Value {
        let bytes = |own_words: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true, "use_regex": own_words});
        let by = |pattern: &str| {
            let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
        };
        match self {
            Self::Gpt2 => bytes(true),
            Self::Qwen2 => by(QWEN2),
        }
    }

    pub fn normalizer(self) -> Value {
        match self {
            Self::Qwen2 => json!({"type": "NFC"}),
            Self::Gpt2 => Value::Null,
        }
    }
}

/// Tokens added around a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    /// The first token if a flag asks for it; the value is the family's default.
    Begin(bool),
    /// The classifier token before, the separator after.
    Both,
    /// The transcription tokens of a speech model before, the end token after.
    Speech,
}

/// A family's conventions.
struct Habits {
    words: Words,
    named: [Option<&'static str>; 7],
    around: Around,
}

const END: Option<&str> = Some("<|endoftext|>");

fn habits(class: Option<&str>, model_type: &str) -> Option<Habits> {
    let gpt2 = |first: Option<&'static str>, begins| Habits {
        words: Words::Gpt2,
        named: [first, first, first, None, None, None, None],
        around: Around::Begin(begins),
    };
    Some(match (class, model_type) {
        (None | Some("GPT2Tokenizer"), "opt") => gpt2(Some("</s>"), true),
        (Some("GPT2Tokenizer"), _) | (None, "gpt2" | "gpt_neo" | "gptj") => gpt2(END, false),
        (Some("Qwen2Tokenizer"), _) | (None, "qwen2") => Habits {
            words: Words::Qwen2,
            named: [None, END, END, None, END, None, None],
            around: Around::Begin(false),
        },
        (Some("RobertaTokenizer" | "BartTokenizer"), _) | (None, "roberta" | "bart") => Habits {
            words: Words::Gpt2,
            named: [
                Some("<s>"),
                Some("</s>"),
                Some("<unk>"),
                Some("</s>"),
                Some("<pad>"),
                Some("<s>"),
                Some("<mask>"),
            ],
            around: Around::Both,
        },
        // The rules for normalising transcripts (normalizer.json) only matter for comparing them.
        (Some("WhisperTokenizer"), _) | (None, "whisper") => Habits {
            around: Around::Speech,
            ..gpt2(END, false)
        },
        _ => return None,
    })
}

/// The first tokens of a speech model's decoder, from the settings of its tokenizer.
fn speech(settings: &Settings, id_of: impl Fn(&str) -> Option<u32>) -> Result<Vec<(String, u32)>> {
    let mut tokens = vec!["<|startoftranscript|>".to_owned()];
    if let Some(language) = settings.word("language")? {
        let lower = language.to_lowercase();
        tokens.push(format!("<|{}|>", language_code(&lower).unwrap_or(&lower)));
    }
    if let Some(task) = settings.word("task")? {
        tokens.push(format!("<|{task}|>"));
    }
    if !settings.flag("predict_timestamps")?.unwrap_or(false) {
        tokens.push("<|notimestamps|>".to_owned());
    }
    let with_id = |token: String| match id_of(&token) {
        Some(id) => Ok((token, id)),
        None => {
            let problem = format!("a text begins with {token}, which is no token here");
            Err(Error::file(&settings.path, problem))
        }
    };
    tokens.into_iter().map(with_id).collect()
}

/// Opens a vocabulary and its merges.
///
/// # Errors
/// When a file is invalid, or a merge names something that is not a token.
pub fn open(vocab_path: &Path, merges_path: &Path, model_type: &str) -> Result<PromptForm> {
    let vocab = read_vocab(vocab_path)?;
    let merges = read_merges(merges_path, &vocab)?;
    let settings = Settings::read(directory_of(vocab_path))?;
    let source_name = format!("{} + {}", file_name(vocab_path), file_name(merges_path));
    let class = settings.class();
    let Some(habits) = habits(class, model_type) else {
        let of = class.unwrap_or(model_type);
        return Ok(PromptForm::Ids(format!(
            "{source_name}: how {of} cuts words and what it adds to a text is not known here"
        )));
    };
    if let Some(reason) = settings.unusual() {
        return Ok(PromptForm::Ids(format!("{source_name}: {reason}")));
    }
    let id_of = |text: &str| vocab.get(text).copied();
    let n_vocab = vocab.len() as u32;
    let mut named = Vec::new();
    for (name, default) in NAMES.iter().zip(habits.named) {
        named.push(settings.named(name, default)?);
    }
    let present: Vec<Token> = named.iter().flatten().cloned().collect();
    let tokens = settings.tokens(&present, &[], id_of, n_vocab)?;
    let prefix_space = settings.flag("add_prefix_space")?.unwrap_or(false);
    let pair = |name_idx: usize| -> Option<(String, u32)> {
        let content = &named[name_idx].as_ref()?.content;
        let (id, token) = tokens.iter().find(|(_, token)| token.content == *content)?;
        Some((token.content.clone(), *id))
    };
    let post_processor = match habits.around {
        Around::Both => template(pair(5), pair(3)),
        Around::Speech => {
            let id_of = |text: &str| {
                let mut known = tokens.iter();
                known
                    .find(|(_, token)| token.content == text)
                    .map(|(id, _)| *id)
            };
            around(&speech(&settings, id_of)?, &Vec::from_iter(pair(1)))
        }
        Around::Begin(habit) => {
            let begins = settings.flag("add_bos_token")?.unwrap_or(habit);
            let ends = settings.flag("add_eos_token")?.unwrap_or(false);
            template(pair(0).filter(|_| begins), pair(1).filter(|_| ends))
        }
    };
    let added: Vec<Value> = tokens.iter().map(|(id, token)| token.json(*id)).collect();
    let model = json!({"type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": false, "byte_fallback": false});
    let words = habits.words;
    let value = assemble(
        &words.normalizer(),
        &words.json(prefix_space),
        &added,
        post_processor,
        model,
    );
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(vocab_path, &value)?),
        source_name,
        target: None,
    }))
}

/// A byte-level tokenizer in the form of `tokenizer.json`.
pub fn assemble(
    normalizer: &Value,
    pre_tokenizer: &Value,
    added: &[Value],
    around: Value,
    model: Value,
) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": around,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model": model,
    })
}

/// Tokens before and after a text, in the form of `tokenizer.json`.
pub fn template(before: Option<(String, u32)>, after: Option<(String, u32)>) -> Value {
    around(&Vec::from_iter(before), &Vec::from_iter(after))
}

fn around(before: &[(String, u32)], after: &[(String, u32)]) -> Value {
    let special =
        |(content, _): &(String, u32)| json!({"SpecialToken": {"id": content, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let sides = |texts: &[&str]| -> Vec<Value> {
        let inside = texts.iter().map(|name| text(name));
        before
            .iter()
            .map(special)
            .chain(inside)
            .chain(after.iter().map(special))
            .collect()
    };
    let entries = before.iter().chain(after).map(|(content, id)| {
        (
            content.clone(),
            json!({"id": content, "ids": [id], "tokens": [content]}),
        )
    });
    let tokens: Map<String, Value> = entries.collect();
    json!({"type": "TemplateProcessing", "single": sides(&["A"]), "pair": sides(&["A", "B"]), "special_tokens": tokens})
}

fn read_vocab(path: &Path) -> Result<BTreeMap<String, u32>> {
    let bytes = read_whole(path, VOCABULARY)?;
    let vocab: BTreeMap<String, u32> = serde_json::from_slice(&bytes).map_err(|e| {
        Error::file(
            path,
            format!("expected a JSON object of tokens and their ids ({e})"),
        )
    })?;
    let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
    for (token, id) in &vocab {
        if let Some(other) = seen.insert(*id, token) {
            return Err(Error::file(
                path,
                format!("{other:?} and {token:?} both have the id {id}"),
            ));
        }
    }
    if vocab.is_empty() {
        return Err(Error::file(path, "expected tokens, found none"));
    }
    Ok(vocab)
}

fn read_merges(path: &Path, vocab: &BTreeMap<String, u32>) -> Result<Vec<[String; 2]>> {
    let text = read_text(path, VOCABULARY)?;
    let mut merges = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        if line.starts_with("#version") {
            continue;
        }
        let place = idx + 1;
        let Some((a, b)) = line.split_once(' ').filter(|(_, b)| !b.contains(' ')) else {
            return Err(Error::file(
                path,
                format!("line {place}: expected two tokens, found {line:?}"),
            ));
        };
        let whole = format!("{a}{b}");
        if let Some(missing) = [a, b, &whole]
            .into_iter()
            .find(|token| !vocab.contains_key(*token))
        {
            let problem = format!(
                "line {place} joins {a:?} and {b:?}, but {missing:?} is not in the vocabulary"
            );
            return Err(Error::file(path, problem));
        }
        merges.push([a.to_owned(), b.to_owned()]);
    }
    Ok(merges)
}
