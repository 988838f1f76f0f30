//! A JSON document whose objects keep the order of their keys: some answers tell which token was meant by that order alone.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// The value of a key of an object, unless it is null.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        let Self::Object(entries) = self else {
            return None;
        };
        let found = entries.iter().find(|(name, _)| name == key)?;
        (found.1 != Self::Null).then_some(&found.1)
    }

    /// The first of some keys that an object has.
    pub fn any<'a>(&'a self, keys: &[&'a str]) -> Option<(&'a str, &'a Tree)> {
        keys.iter().find_map(|key| Some((*key, self.get(key)?)))
    }

    pub fn list(&self) -> Option<&[Tree]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    pub fn object(&self) -> Option<&[(String, Tree)]> {
        match self {
            Self::Object(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number, also one that stands as a text: "NaN", "-Infinity", "-1.5".
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => match text.trim() {
                "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
                text => text.parse().ok(),
            },
            _ => None,
        }
    }

    /// A token id.
    pub fn id(&self) -> Option<u32> {
        let value = self.number()?;
        (value >= 0.0 && value.fract() == 0.0 && value <= f64::from(u32::MAX))
            .then_some(value as u32)
    }

    /// Whether it is a list of numbers, nulls among them.
    pub fn is_numbers(&self) -> bool {
        let is_number = |value: &Tree| {
            matches!(value, Self::Null | Self::Number(_))
                || value.text().is_some_and(|_| value.number().is_some())
        };
        self.list().is_some_and(|list| list.iter().all(is_number))
    }

    /// Whether it is a list of lists.
    pub fn is_batch(&self) -> bool {
        self.list()
            .is_some_and(|list| !list.is_empty() && list.iter().all(|value| value.list().is_some()))
    }

    /// Number of values in it.
    pub fn n_values(&self) -> usize {
        match self {
            Self::List(list) => list.iter().map(Self::n_values).sum::<usize>() + 1,
            Self::Object(entries) => {
                entries
                    .iter()
                    .map(|(_, value)| value.n_values())
                    .sum::<usize>()
                    + 1
            }
            _ => 1,
        }
    }

    /// Reads JSON, with the NaN and infinities that Python's `json` writes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text) {
            Ok(tree) => Ok(tree),
            Err(problem) => {
                let other = with_words_quoted(text).ok_or_else(|| problem.to_string())?;
                serde_json::from_str(&other).map_err(|problem| problem.to_string())
            }
        }
    }
}

/// Puts quotes around NaN and infinities outside of texts; `None` if there are none.
fn with_words_quoted(text: &str) -> Option<String> {
    let words = ["-Infinity", "Infinity", "NaN"];
    let mut quoted = String::with_capacity(text.len());
    let (mut is_inside, mut found) = (false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if !is_inside && let Some(word) = words.iter().find(|word| rest.starts_with(**word)) {
            quoted.extend(["\"", word, "\""]);
            rest = &rest[word.len()..];
            found = true;
            continue;
        }
        let mut n = next.len_utf8();
        if is_inside && next == '\\' {
            n += rest[n..].chars().next().map_or(0, char::len_utf8);
        } else if next == '"' {
            is_inside = !is_inside;
        }
        quoted.push_str(&rest[..n]);
        rest = &rest[n..];
    }
    found.then_some(quoted)
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Number(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Number(value as f64))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
                Ok(Tree::Number(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Tree, E> {
                Ok(Tree::Text(value))
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(value) = from.next_element()? {
                    list.push(value);
                }
                Ok(Tree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = from.next_entry()? {
                    entries.push(entry);
                }
                Ok(Tree::Object(entries))
            }
        }
        from.deserialize_any(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_words_of_python_are_numbers() {
        let tree =
            Tree::parse(r#"{"9": 1, "2": NaN, "a\"NaN": [-Infinity, "Infinity"]}"#).expect("JSON");
        let keys: Vec<&str> = tree
            .object()
            .expect("an object")
            .iter()
            .map(|(key, _)| key.as_str())
            .collect();
        assert_eq!(keys, ["9", "2", "a\"NaN"]);
        assert!(
            tree.get("2")
                .and_then(Tree::number)
                .expect("a number")
                .is_nan()
        );
        let list = tree.get("a\"NaN").and_then(Tree::list).expect("a list");
        assert_eq!(list[0].number(), Some(f64::NEG_INFINITY));
        assert!(Tree::parse("{").is_err());
    }
}
