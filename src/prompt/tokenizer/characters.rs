//! A table of single characters and their ids, as stored by character models.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::{VOCABULARY, read_whole};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::{Inner, PromptForm, Token, Tokenizer};

/// One id per character.
#[derive(Debug)]
pub struct Characters {
    ids: BTreeMap<char, u32>,
    characters: BTreeMap<u32, char>,
}

impl Characters {
    /// # Errors
    /// When the text contains a character without an id.
    pub fn encode(&self, text: &str) -> Result<Vec<Token>> {
        let token = |(at, (byte, character)): (usize, (usize, char))| {
            let id = self.ids.get(&character).copied().ok_or_else(|| {
                let n = self.ids.len();
                let problem = format!("the character {character:?} at position {at} is none of the {n} that the model knows");
                Error::Prompt(problem)
            })?;
            Ok(Token {
                id,
                bytes: byte..byte + character.len_utf8(),
                is_special: false,
                is_known: true,
            })
        };
        text.char_indices().enumerate().map(token).collect()
    }

    pub fn character(&self, id: u32) -> Option<char> {
        self.characters.get(&id).copied()
    }
}

/// Opens a pickled table. A table without characters yields [`PromptForm::Ids`] with the reason.
///
/// # Errors
/// When the file cannot be read, is not a plain pickle, or its table does not hold characters.
pub fn open(path: &Path) -> Result<PromptForm> {
    let bytes = read_whole(path, VOCABULARY)?;
    if path.extension().is_some_and(|ending| ending == "json") {
        return from_json(path, &bytes);
    }
    let value = attnscope_checkpoint::pytorch::plain_pickle(&bytes, path)?;
    match value.get("stoi") {
        Some(stoi) => Ok(PromptForm::Tokenizer(tokenizer(path, stoi)?)),
        None => Ok(PromptForm::Ids(
            "meta.pkl holds no stoi, the map from characters to ids".to_owned(),
        )),
    }
}

/// A table of characters as JSON: a string or a list, numbered from 0, or a map to ids.
fn from_json(path: &Path, bytes: &[u8]) -> Result<PromptForm> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|e| Error::file(path, format!("is not valid JSON ({e})")))?;
    let counted = |all: Vec<String>| {
        let ids = all.into_iter().zip(0u32..);
        Value::Object(ids.map(|(character, id)| (character, id.into())).collect())
    };
    let stoi = match &value {
        Value::String(text) => counted(
            text.chars()
                .map(|character| character.to_string())
                .collect(),
        ),
        Value::Array(list) => {
            let all = list
                .iter()
                .filter_map(|one| one.as_str().map(str::to_owned));
            counted(all.collect())
        }
        other => other.get("stoi").unwrap_or(other).clone(),
    };
    Ok(PromptForm::Tokenizer(tokenizer(path, &stoi)?))
}

/// A tokenizer from a map of characters to ids; `path` is the file that contains it.
///
/// # Errors
/// When the value is not such a map, a key is not one character, or an id occurs twice.
pub fn tokenizer(path: &Path, stoi: &Value) -> Result<Tokenizer> {
    let Some(map) = stoi.as_object().filter(|map| !map.is_empty()) else {
        return Err(Error::config(
            path,
            "stoi",
            "expected a map of characters and their ids",
        ));
    };
    let (mut ids, mut characters) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in map {
        let mut all = key.chars();
        let (Some(character), None) = (all.next(), all.next()) else {
            return Err(Error::config(
                path,
                "stoi",
                format!("expected single characters, found {key:?}"),
            ));
        };
        let Some(id) = value.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(Error::config(
                path,
                "stoi",
                format!("expected an id for {key:?}, found {value}"),
            ));
        };
        if let Some(other) = characters.insert(id, character) {
            return Err(Error::config(
                path,
                "stoi",
                format!("{other:?} and {character:?} both have the id {id}"),
            ));
        }
        ids.insert(character, id);
    }
    let n = counted(ids.len(), "character");
    Ok(Tokenizer {
        inner: Inner::Characters(Characters { ids, characters }),
        source_name: format!("a table of {n}"),
        target: None,
    })
}
