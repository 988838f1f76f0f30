//! Gives the tensors outside the layers their part: tables, norms and the head.

use attnscope_compute::error::Result;

use super::super::Facts;
use super::parts::unknown;
use super::stack::Entry;
use crate::reading::described::names::{Role, is_bias, is_named, score, stem};

const POSITIONS: [&str; 8] = [
    "pos",
    "position",
    "positions",
    "positional",
    "wpe",
    "pe",
    "posemb",
    "posenc",
];
const TYPES: [&str; 6] = ["seg", "segment", "segments", "type", "types", "sentence"];
const UNEMBEDDINGS: [&str; 3] = ["unembedding", "predictor", "lmhead"];
const TABLES: [&str; 4] = [
    "embedder",
    "wordembeddings",
    "wordembedding",
    "tokenembedding",
];

/// The tensors outside the layers.
pub struct Outside<'a> {
    pub tokens: &'a Entry,
    /// Whether the table of tokens has one column per token.
    pub is_turned: bool,
    pub positions: Option<&'a Entry>,
    pub token_types: Option<&'a Entry>,
    pub embed_norm: Option<&'a Entry>,
    pub final_norm: Option<&'a Entry>,
    pub head: Option<&'a Entry>,
    biases: Vec<&'a Entry>,
}

impl<'a> Outside<'a> {
    /// `None` if no table is that of tokens by its name.
    ///
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    pub fn of(facts: &Facts<'_>, outside: &'a [Entry]) -> Result<Option<Self>> {
        let (mut tables, mut positions, mut norms, mut biases) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut token_types = None;
        for entry in outside {
            let is_types = entry.shape.len() == 2 && entry.has_word(&TYPES);
            if is_types && token_types.is_none() {
                token_types = Some(entry);
                continue;
            }
            match entry.trimmed().len() {
                _ if entry.has_word(&POSITIONS) => positions.push(entry),
                1 if is_bias(&entry.words) => biases.push(entry),
                1 if entry.is_norm() => norms.push(entry),
                2 => tables.push(entry),
                // A norm in one axis of a sequence's shape, and anything else.
                _ => return Err(unknown(facts, entry)),
            }
        }
        let hint = |entry: &Entry| {
            let is_table = i32::from(entry.has_word(&TABLES));
            let is_head = i32::from(entry.has_word(&UNEMBEDDINGS));
            score(Role::Tokens, &entry.words) + 2 * is_table
                - score(Role::Unembed, &entry.words)
                - 4 * is_head
        };
        let (mut tokens, mut heads): (Vec<&Entry>, Vec<&Entry>) =
            tables.into_iter().partition(|entry| hint(entry) > 0);
        tokens.sort_by_key(|entry| -hint(entry));
        let twice = |part: &str, one: &Entry, other: &Entry| {
            let problem = format!(
                "{} could be the {part} as well; [tensors] in attnscope.toml says which is",
                other.first
            );
            Err(facts.at(&one.first, problem))
        };
        let Some(table) = tokens.first().copied() else {
            return Ok(None);
        };
        let [n_rows, n_columns] = table.shape[..] else {
            return Err(unknown(facts, table));
        };
        // Positions and norms are as wide as the model.
        let widths = positions.iter().chain(&norms);
        let is_turned = n_rows != n_columns
            && widths.clone().next().is_some()
            && widths
                .clone()
                .all(|entry| entry.shape.last() == Some(&n_rows));
        let d_model = if is_turned { n_rows } else { n_columns };
        // Tied weights may be stored once more, under another name.
        let is_copy = |entry: &&Entry| facts.tensors.share_bytes(&entry.first, &table.first);
        heads.retain(|head| !is_copy(head));
        if let Some(other) = tokens.iter().skip(1).find(|entry| !is_copy(entry)) {
            return twice("table of tokens", other, table).map(|()| None);
        }
        if let [one, other, ..] = heads[..] {
            return twice("head", one, other).map(|()| None);
        }
        let head = heads.first().copied();
        if let Some(head) = head.filter(|head| !head.shape.contains(&d_model)) {
            return Err(unknown(facts, head));
        }
        if let [one, other, ..] = positions[..] {
            return twice("table of positions", one, other).map(|()| None);
        }
        if let Some(entry) = positions.iter().find(|entry| {
            let wide = entry.shape.iter().filter(|n| **n != 1).count();
            wide != 2 || entry.shape.last() != Some(&d_model)
        }) {
            return Err(unknown(facts, entry));
        }
        let is_of_embedding = |entry: &&Entry| {
            is_named(Role::Tokens, &entry.words) || entry.has_word(&["input", "embed"])
        };
        let (embed_norms, final_norms): (Vec<&Entry>, Vec<&Entry>) =
            norms.into_iter().partition(|entry| is_of_embedding(entry));
        for (part, found) in [
            ("final norm", &final_norms),
            ("norm of embeddings", &embed_norms),
        ] {
            if let [one, other, ..] = found[..] {
                return twice(part, one, other).map(|()| None);
            }
        }
        let found = Self {
            tokens: table,
            is_turned,
            positions: positions.first().copied(),
            token_types,
            embed_norm: embed_norms.first().copied(),
            final_norm: final_norms.first().copied(),
            head,
            biases,
        };
        if let Some(entry) = token_types.filter(|entry| entry.shape[1] != d_model) {
            return Err(unknown(facts, entry));
        }
        for norm in found.norms() {
            if norm.shape != [d_model] {
                return Err(unknown(facts, norm));
            }
        }
        let has_owner = |bias: &&Entry| {
            let parts = found.norms().into_iter().chain(found.head);
            parts
                .into_iter()
                .any(|part| stem(&part.words) == stem(&bias.words))
        };
        if let Some(bias) = found.biases.iter().find(|bias| !has_owner(bias)) {
            return Err(unknown(facts, bias));
        }
        Ok(Some(found))
    }

    fn norms(&self) -> Vec<&'a Entry> {
        self.embed_norm.into_iter().chain(self.final_norm).collect()
    }

    pub fn bias_of(&self, entry: &Entry) -> Option<&'a Entry> {
        let own = stem(&entry.words);
        self.biases
            .iter()
            .find(|bias| stem(&bias.words) == own)
            .copied()
    }
}
