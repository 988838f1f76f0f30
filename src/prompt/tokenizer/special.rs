//! Special and added tokens, from the small JSON files beside a vocabulary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{CONFIGURATION, read_whole};
use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

/// The named tokens, in the order in which those missing from the vocabulary get ids.
pub const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Keys that contain lists of further tokens.
const FURTHER: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// The key that names the class; read from `config.json` if the tokenizer's own file does not have it.
const CLASS: &str = "tokenizer_class";

/// A token matched in the text as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub content: String,
    pub lstrip: bool,
    pub rstrip: bool,
    pub normalized: bool,
    pub single_word: bool,
    pub special: bool,
}

impl Token {
    pub fn special(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            lstrip: false,
            rstrip: false,
            normalized: false,
            single_word: false,
            special: true,
        }
    }

    /// The token in the form of `tokenizer.json`.
    pub fn json(&self, id: u32) -> Value {
        json!({
            "id": id, "content": self.content, "single_word": self.single_word, "lstrip": self.lstrip,
            "rstrip": self.rstrip, "normalized": self.normalized, "special": self.special,
        })
    }
}

/// The settings of a tokenizer that is stored in several files.
#[derive(Debug)]
pub struct Settings {
    pub path: PathBuf,
    values: Map<String, Value>,
    /// Tokens with ids that the files state.
    added: BTreeMap<u32, Token>,
}

/// Reads a JSON object; empty if there is no file.
fn object(path: &Path) -> Result<Map<String, Value>> {
    if !path.exists() {
        return Ok(Map::new());
    }
    let bytes = read_whole(path, CONFIGURATION)?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(values)) => Ok(values),
        Ok(_) => Err(Error::file(
            path,
            "expected a JSON object, found another JSON value",
        )),
        Err(e) => Err(Error::file(path, format!("is not valid JSON ({e})"))),
    }
}

impl Settings {
    /// Reads `tokenizer_config.json`, and beside it `special_tokens_map.json` and `added_tokens.json` if the first does not list
    /// the added tokens.
    ///
    /// # Errors
    /// When a file exists but is invalid.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("tokenizer_config.json");
        let mut values = object(&path)?;
        if !values.contains_key(CLASS) {
            let config = object(&directory.join("config.json"))?;
            let class = config.get(CLASS).cloned();
            values.extend(class.map(|class| (CLASS.to_owned(), class)));
        }
        let mut added = BTreeMap::new();
        let listed = values
            .get("added_tokens_decoder")
            .and_then(Value::as_object);
        if let Some(listed) = listed.cloned() {
            for (id, value) in &listed {
                let key = || format!("added_tokens_decoder.{id}");
                let fault =
                    || Error::config(&path, key(), "expected an id and a token with its content");
                let token = token(value, false).ok_or_else(fault)?;
                added.insert(id.parse().map_err(|_| fault())?, token);
            }
        } else {
            values.extend(object(&directory.join("special_tokens_map.json"))?);
            let added_path = directory.join("added_tokens.json");
            let named: Vec<String> = NAMES
                .iter()
                .filter_map(|name| Some(token(values.get(*name)?, true)?.content))
                .collect();
            for (content, id) in object(&added_path)? {
                let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                    return Err(Error::config(
                        &added_path,
                        content,
                        format!("expected an id, found {id}"),
                    ));
                };
                let special = named.contains(&content);
                let token = Token {
                    normalized: !special,
                    special,
                    ..Token::special(&content)
                };
                added.insert(id, token);
            }
        }
        Ok(Self {
            path,
            values,
            added,
        })
    }

    /// The tokenizer class, without the `Fast` suffix.
    pub fn class(&self) -> Option<&str> {
        let class = self.values.get(CLASS)?.as_str()?;
        Some(class.strip_suffix("Fast").unwrap_or(class))
    }

    /// A truth value; `None` if the key is absent or null.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(Error::config(
                &self.path,
                key,
                format!("expected true or false, found {other}"),
            )),
        }
    }

    /// A string; `None` if the key is absent or null.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn word(&self, key: &str) -> Result<Option<&str>> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(word)) => Ok(Some(word)),
            Some(other) => Err(Error::config(
                &self.path,
                key,
                format!("expected a word, found {other}"),
            )),
        }
    }

    /// A whole number; `None` if the key is absent or null.
    ///
    /// # Errors
    /// When the value is something else, or absurdly large.
    pub fn count(&self, key: &str) -> Result<Option<u32>> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().filter(|n| *n <= 1 << 20) {
                Some(n) => Ok(Some(n as u32)),
                None => Err(Error::config(
                    &self.path,
                    key,
                    format!("expected a small whole number, found {value}"),
                )),
            },
        }
    }

    /// A named token: from the files, or the default; `None` without either.
    ///
    /// # Errors
    /// When the value is not a token.
    pub fn named(&self, name: &str, default: Option<&str>) -> Result<Option<Token>> {
        let stated = match self.values.get(name) {
            None => default.map(Token::special),
            Some(Value::Null) => None,
            Some(value) => match token(value, true) {
                Some(token) => Some(token),
                None => {
                    return Err(Error::config(
                        &self.path,
                        name,
                        format!("expected a token, found {value}"),
                    ));
                }
            },
        };
        // The list of added tokens takes precedence for its properties.
        Ok(stated.map(|stated| {
            let listed = self
                .added
                .values()
                .find(|token| token.content == stated.content);
            listed.map_or(stated, |listed| Token {
                special: true,
                ..listed.clone()
            })
        }))
    }

    /// Every token to match in a text, with its id: those with an id, named ones, and further ones.
    ///
    /// # Errors
    /// When the files contradict each other, or the vocabulary, about an id.
    pub fn tokens(
        &self,
        named: &[Token],
        further: &[Token],
        id_of: impl Fn(&str) -> Option<u32>,
        n_vocab: u32,
    ) -> Result<Vec<(u32, Token)>> {
        let mut all: Vec<(u32, Token)> = Vec::new();
        let mut seen = BTreeSet::new();
        let is_named: BTreeSet<&str> = named.iter().map(|token| token.content.as_str()).collect();
        let mut next = n_vocab;
        let stated = self
            .added
            .iter()
            .map(|(id, token)| (Some(*id), token.clone()));
        let others = named
            .iter()
            .chain(further)
            .map(|token| (None, token.clone()));
        let listed = self.listed()?;
        let rest = listed.into_iter().map(|token| (None, token));
        for (stated, mut token) in stated.chain(others).chain(rest) {
            if token.content.is_empty() || !seen.insert(token.content.clone()) {
                continue;
            }
            let id = id_of(&token.content).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            if let Some(stated) = stated.filter(|stated| *stated != id) {
                let what = &token.content;
                let problem =
                    format!("gives {what:?} the id {stated}, the vocabulary makes it {id}");
                return Err(Error::file(&self.path, problem));
            }
            token.special |= is_named.contains(token.content.as_str());
            all.push((id, token));
        }
        Ok(all)
    }

    /// The tokens that are only in the lists of further tokens.
    fn listed(&self) -> Result<Vec<Token>> {
        let mut all = Vec::new();
        for key in FURTHER {
            match self.values.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(values)) => {
                    for value in values {
                        let fault = || {
                            Error::config(
                                &self.path,
                                key,
                                format!("expected a token, found {value}"),
                            )
                        };
                        all.push(token(value, true).ok_or_else(fault)?);
                    }
                }
                Some(Value::Object(values)) => {
                    all.extend(values.values().filter_map(|value| token(value, true)));
                }
                Some(other) => {
                    return Err(Error::config(
                        &self.path,
                        key,
                        format!("expected a list, found {other}"),
                    ));
                }
            }
        }
        Ok(all)
    }

    /// Why ids under these settings would not be certain.
    pub fn unusual(&self) -> Option<String> {
        let set = |key: &str| match self.values.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        };
        let key = ["split_special_tokens", "sp_model_kwargs"]
            .into_iter()
            .find(|key| set(key))?;
        Some(format!(
            "what {key} in tokenizer_config.json asks for is not known here"
        ))
    }

    /// Whether some token only matches without letters next to it.
    pub fn has_single_word(&self) -> bool {
        self.added.values().any(|token| token.single_word)
    }

    /// Whether some added token only matches after normalisation.
    pub fn has_normalized(&self) -> bool {
        self.added
            .values()
            .any(|token| token.normalized && !token.special)
    }
}

/// A token given as a string, or as an object with its content and matching rules.
fn token(value: &Value, special: bool) -> Option<Token> {
    if let Some(content) = value.as_str() {
        return Some(Token::special(content));
    }
    let fields = value.as_object()?;
    let flag = |key: &str| fields.get(key).and_then(Value::as_bool);
    let special = special || flag("special").unwrap_or(false);
    Some(Token {
        content: fields.get("content")?.as_str()?.to_owned(),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        single_word: flag("single_word").unwrap_or(false),
        special,
    })
}
