//! Tables of single characters and their ids, in the shapes that home-made code stores, and the characters of a training text.

use std::collections::BTreeSet;
use std::path::Path;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::{VOCABULARY, read_text};

/// What people call a map from characters to ids.
const TO_IDS: [&str; 14] = [
    "stoi",
    "char_to_idx",
    "char2idx",
    "char_to_id",
    "char2id",
    "char_to_ix",
    "char_to_int",
    "char2int",
    "ch2i",
    "c2i",
    "ctoi",
    "token_to_id",
    "vocab",
    "vocabulary",
];

/// What people call its inverse.
const TO_CHARACTERS: [&str; 9] = [
    "itos",
    "idx_to_char",
    "idx2char",
    "id_to_char",
    "id2char",
    "ix_to_char",
    "int_to_char",
    "i2c",
    "itoc",
];

/// What people call a list of characters in the order of their ids.
const LISTS: [&str; 6] = [
    "chars",
    "characters",
    "alphabet",
    "vocab",
    "vocabulary",
    "charset",
];

/// Where trainers put such tables, beside the tables themselves.
const INSIDE: [&str; 4] = ["tokenizer", "config", "meta", "vocab"];

/// A map from characters, and perhaps special tokens such as `<pad>`, to ids; `None` unless a value is such a table in any shape: a
/// map, its inverse, a text or a list in the order of the ids, or a dictionary or tuple with one of them.
pub fn table_of(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::String(text) => counted(text.chars().map(String::from).collect()),
        Value::Array(list) => {
            let texts = list.iter().map(|one| one.as_str().map(str::to_owned));
            match texts.collect::<Option<Vec<String>>>() {
                Some(texts) => counted(texts),
                None => list
                    .iter()
                    .filter(|one| !one.is_string())
                    .find_map(table_of),
            }
        }
        Value::Object(map) => stored(map).or_else(|| of_map(map)),
        _ => None,
    }
}

/// The table under one of the usual names among values that are stored beside weights.
pub fn stored(values: &Map<String, Value>) -> Option<Map<String, Value>> {
    let object = |name: &&str| values.get(*name)?.as_object();
    let ids = TO_IDS.iter().filter_map(&object);
    let characters = TO_CHARACTERS.iter().filter_map(&object);
    let lists = LISTS.iter().filter_map(|name| values.get(*name));
    let lists = lists.filter(|value| value.is_array() || value.is_string());
    let own = ids.chain(characters).find_map(of_map);
    own.or_else(|| lists.filter_map(table_of).next())
        .or_else(|| {
            let inside = INSIDE.iter().filter_map(object);
            inside
                .filter(|inside| of_map(inside).is_none())
                .find_map(stored)
        })
}

/// The characters of a training text in the order of their code points, as `sorted(set(text))` numbers them.
///
/// # Errors
/// When the text cannot be read or is empty.
pub fn of_text(path: &Path) -> Result<Map<String, Value>> {
    // Python reads every end of a line as one character.
    let text = read_text(path, VOCABULARY)?
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let all: BTreeSet<char> = text.chars().collect();
    counted(all.into_iter().map(String::from).collect())
        .ok_or_else(|| Error::file(path, "expected a text with characters, found none"))
}

/// A map, or the inverse of one.
fn of_map(map: &Map<String, Value>) -> Option<Map<String, Value>> {
    let is_id = |value: &Value| value.is_u64();
    if map.values().all(is_id) {
        let is_whole = is_alphabet(map.keys().map(String::as_str));
        return is_whole.then(|| map.clone());
    }
    let mut inverse = Map::new();
    for (id, character) in map {
        let id: u32 = id.parse().ok()?;
        inverse.insert(character.as_str()?.to_owned(), id.into());
    }
    let is_whole = inverse.len() == map.len() && is_alphabet(inverse.keys().map(String::as_str));
    is_whole.then_some(inverse)
}

fn counted(all: Vec<String>) -> Option<Map<String, Value>> {
    if !is_alphabet(all.iter().map(String::as_str)) {
        return None;
    }
    let ids = all.into_iter().zip(0u32..);
    Some(ids.map(|(character, id)| (character, id.into())).collect())
}

/// Whether these are single characters, beside a few special tokens.
fn is_alphabet<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let is_special = |name: &str| {
        let ends = [('<', '>'), ('[', ']')];
        ends.iter()
            .any(|(first, last)| name.starts_with(*first) && name.ends_with(*last))
    };
    let mut n_characters = 0;
    for name in names {
        if name.chars().count() == 1 {
            n_characters += 1;
        } else if !is_special(name) {
            return false;
        }
    }
    n_characters > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_gives_the_same_table() {
        let expected = json!({ "<pad>": 0, "a": 1, "b": 2 });
        for value in [
            json!({ "<pad>": 0, "a": 1, "b": 2 }),
            json!({ "0": "<pad>", "1": "a", "2": "b" }),
            json!(["<pad>", "a", "b"]),
            json!([{ "<pad>": 0, "a": 1, "b": 2 }, { "0": "<pad>", "1": "a", "2": "b" }]),
            json!({ "vocab_size": 3, "itos": { "0": "<pad>", "1": "a", "2": "b" } }),
            json!({ "epoch": 4, "tokenizer": { "chars": ["<pad>", "a", "b"] } }),
            json!({ "vocab": { "stoi": { "<pad>": 0, "a": 1, "b": 2 } } }),
        ] {
            assert_eq!(
                table_of(&value).map(Value::Object),
                Some(expected.clone()),
                "{value}"
            );
        }
        for value in [
            json!({ "the": 0, "owl": 1 }),
            json!(["the", "owl"]),
            json!({ "0": "a", "1": "a" }),
            json!({ "epoch": 3 }),
            json!([1, 2]),
        ] {
            assert_eq!(table_of(&value), None, "{value}");
        }
    }

    #[test]
    fn a_text_numbers_its_characters_as_python_sorts_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("input.txt");
        std::fs::write(&path, "b\r\naé b").expect("writes");
        let table = of_text(&path).expect("a table");
        assert_eq!(
            Value::Object(table),
            json!({ "\n": 0, " ": 1, "a": 2, "b": 3, "é": 4 })
        );
    }
}
