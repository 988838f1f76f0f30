//! A table of single characters and their ids, as stored by character models.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::characters::table_of;
use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::{VOCABULARY, read_whole};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::{Inner, PromptForm, Token, Tokenizer, file_name};

/// One id per character.
#[derive(Debug)]
pub struct Characters {
    ids: BTreeMap<char, u32>,
    /// Characters, and special tokens such as `<pad>`.
    labels: BTreeMap<u32, String>,
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

    pub fn label(&self, id: u32) -> Option<&str> {
        self.labels.get(&id).map(String::as_str)
    }

    /// Whether an id is a special token, which stands for no character.
    pub fn is_special(&self, id: u32) -> bool {
        self.label(id)
            .is_some_and(|label| label.chars().count() > 1)
    }
}

/// Opens a table of characters in a pickle or in JSON. A file without one yields [`PromptForm::Ids`] with the reason.
///
/// # Errors
/// When the file cannot be read, or is neither a plain pickle nor JSON.
pub fn open(path: &Path) -> Result<PromptForm> {
    let bytes = read_whole(path, VOCABULARY)?;
    let value: Value = if path.extension().is_some_and(|ending| ending == "json") {
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(path, format!("is not valid JSON ({e})")))?
    } else {
        attnscope_checkpoint::pytorch::plain_pickle(&bytes, path)?
    };
    match table_of(&value) {
        Some(table) => Ok(PromptForm::Tokenizer(tokenizer(
            path,
            &Value::Object(table),
        )?)),
        None => Ok(PromptForm::Ids(format!(
            "{} holds no stoi, nor another map from characters to ids",
            file_name(path)
        ))),
    }
}

/// A tokenizer from a map of characters to ids; `path` is the file that contains it. Longer keys are special tokens: labels that no text
/// gives.
///
/// # Errors
/// When the value is not such a map, has no character, or an id occurs twice.
pub fn tokenizer(path: &Path, stoi: &Value) -> Result<Tokenizer> {
    let refused = |problem: String| Error::config(path, "stoi", problem);
    let Some(map) = stoi.as_object().filter(|map| !map.is_empty()) else {
        return Err(refused(
            "expected a map of characters and their ids".to_owned(),
        ));
    };
    let (mut ids, mut labels) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in map {
        let Some(id) = value.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(refused(format!(
                "expected an id for {key:?}, found {value}"
            )));
        };
        let mut all = key.chars();
        if let (Some(character), None) = (all.next(), all.next()) {
            ids.insert(character, id);
        }
        if let Some(other) = labels.insert(id, key.clone()) {
            return Err(refused(format!(
                "{other:?} and {key:?} both have the id {id}"
            )));
        }
    }
    if ids.is_empty() {
        let found = map.keys().next().map_or("", String::as_str);
        return Err(refused(format!(
            "expected single characters, found {found:?}"
        )));
    }
    let n = counted(ids.len(), "character");
    Ok(Tokenizer {
        inner: Inner::Characters(Characters { ids, labels }),
        source_name: format!("a table of {n}"),
        target: None,
    })
}
