//! Marian's numbering: a model splits the text, and `vocab.json` gives each piece its id.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use attnscope_checkpoint::{VOCABULARY, read_whole};
use attnscope_compute::error::{Error, Result};

use super::Model;

/// Ids by text, and texts by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    ids: BTreeMap<String, u32>,
    texts: BTreeMap<u32, String>,
    unknown: u32,
}

impl Listing {
    /// # Errors
    /// When the file is not a list of texts and ids, two texts share an id, or the unknown token is missing.
    pub fn read(path: &Path, unknown: &str) -> Result<Self> {
        let bytes = read_whole(path, VOCABULARY)?;
        let ids: BTreeMap<String, u32> = serde_json::from_slice(&bytes).map_err(|e| {
            Error::file(
                path,
                format!("expected a JSON object of tokens and their ids ({e})"),
            )
        })?;
        let mut texts = BTreeMap::new();
        for (text, id) in &ids {
            if let Some(other) = texts.insert(*id, text.clone()) {
                return Err(Error::file(
                    path,
                    format!("{other:?} and {text:?} both have the id {id}"),
                ));
            }
        }
        let Some(unknown) = ids.get(unknown).copied() else {
            return Err(Error::file(
                path,
                format!("expected the unknown token {unknown:?} among its tokens, found none"),
            ));
        };
        Ok(Self {
            ids,
            texts,
            unknown,
        })
    }

    pub fn len(&self) -> u32 {
        self.ids.len() as u32
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub fn text_of(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// Ids of a stretch, each with the bytes that it covers; a leading language code, `>>fr<<`, is one token.
    pub fn encode(&self, model: &Model, text: &str) -> Vec<(u32, Range<usize>)> {
        let id = |text: &str| self.id_of(text).unwrap_or(self.unknown);
        let end = text.starts_with(">>").then(|| text.find("<<")).flatten();
        let (code, rest) = text.split_at(end.map_or(0, |at| at + 2));
        let mut found = Vec::new();
        if !code.is_empty() {
            found.push((id(code), 0..code.len()));
        }
        let pieces = model.split(rest).into_iter();
        found.extend(pieces.map(|(piece, range)| {
            let range = code.len() + range.start..code.len() + range.end;
            (id(&piece), range)
        }));
        found
    }
}
