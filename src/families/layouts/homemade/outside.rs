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

/// How much the name says of a table of tokens: more than 0 for one, less for a head.
fn hint(entry: &Entry) -> i32 {
    let is_table = i32::from(entry.has_word(&TABLES));
    let is_head = i32::from(entry.has_word(&UNEMBEDDINGS));
    score(Role::Tokens, &entry.words) + 2 * is_table
        - score(Role::Unembed, &entry.words)
        - 4 * is_head
}

/// The module at the top of the names in which a tensor stands.
fn module_of(entry: &Entry) -> &str {
    entry.first.split('.').next().unwrap_or_default()
}

/// Words for a head that reads all positions in one row.
const HEADS: [&str; 8] = [
    "head",
    "classifier",
    "regressor",
    "decoder",
    "output",
    "out",
    "fc",
    "predictor",
];

/// The module of a head that has several matrices: it begins at the width of the layers, or of all positions, and has no table.
fn head_of_several(outside: &[Entry], width: Option<usize>) -> Option<String> {
    let width = width?;
    let is_matrix = |entry: &&Entry| entry.shape.len() == 2 && !is_of_positions(entry);
    let matrices: Vec<&Entry> = outside.iter().filter(is_matrix).collect();
    let reads_all = |entry: &Entry| entry.shape[1].is_multiple_of(width) && entry.has_word(&HEADS);
    let begins =
        |entry: &&&Entry| (entry.shape[1] == width || reads_all(entry)) && hint(entry) <= 0;
    let found = matrices.iter().find(|entry| {
        let own = module_of(entry);
        let inside = || matrices.iter().filter(|other| module_of(other) == own);
        begins(entry) && inside().count() > 1 && inside().all(|other| hint(other) <= 0)
    });
    found.map(|entry| module_of(entry).to_owned())
}

/// The map of the numbers at each position to the residual: a matrix with a bias, or the only one that begins elsewhere.
fn map_of_values<'a>(
    tables: &[&'a Entry],
    biases: &[&Entry],
    width: Option<usize>,
) -> Option<&'a Entry> {
    let width = width?;
    let is_map = |entry: &&&Entry| entry.shape[0] == width && entry.shape[1] != width;
    let has_bias = |entry: &Entry| {
        let mut biases = biases.iter();
        biases.any(|bias| bias.shape == [width] && stem(&bias.words) == stem(&entry.words))
    };
    let maps: Vec<&&Entry> = tables.iter().filter(is_map).collect();
    match maps[..] {
        [map] if has_bias(map) || !tables.iter().any(|entry| hint(entry) > 0) => Some(map),
        _ => None,
    }
}

/// Whether an entry is a table of positions by its name.
pub fn is_of_positions(entry: &Entry) -> bool {
    entry.has_word(&POSITIONS)
}

/// Whether the name of a norm is one of what the first layer reads.
pub fn is_of_embedding(entry: &Entry) -> bool {
    is_named(Role::Tokens, &entry.words) || entry.has_word(&["input", "embed"])
}

/// Whether an entry is a table of tokens by its name.
pub fn is_of_tokens(entry: &Entry) -> bool {
    !is_of_positions(entry) && entry.trimmed().len() == 2 && hint(entry) > 0
}

/// What the first matrix of a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A table with one row per token.
    Rows,
    /// A table with one column per token.
    Columns,
    /// A linear map of the numbers at a position.
    Values,
    /// A map of the patches of a picture.
    Patches,
}

/// The tensors outside the layers.
pub struct Outside<'a> {
    pub tokens: &'a Entry,
    pub input: Input,
    /// The module of a head of several layers, which is not read.
    pub aside: Option<String>,
    pub positions: Option<&'a Entry>,
    pub token_types: Option<&'a Entry>,
    pub embed_norm: Option<&'a Entry>,
    pub final_norm: Option<&'a Entry>,
    pub head: Option<&'a Entry>,
    /// The matrix of a head of pictures before its last one.
    pub dense: Option<&'a Entry>,
    /// The norms of such a head: of what is pooled, and of what the first matrix gives.
    pub pooled_norm: Option<&'a Entry>,
    pub head_norm: Option<&'a Entry>,
    /// A last norm that no training changed.
    pub unused_norm: Option<&'a Entry>,
    pub(super) biases: Vec<&'a Entry>,
}

impl<'a> Outside<'a> {
    /// `None` if no table is that of tokens by its name, and no map reads numbers. `width` is that of the layers, if they tell it.
    ///
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    pub fn of(
        facts: &Facts<'_>,
        outside: &'a [Entry],
        width: Option<usize>,
    ) -> Result<Option<Self>> {
        let aside = head_of_several(outside, width);
        let is_aside = |entry: &&Entry| aside.as_deref().is_some_and(|own| module_of(entry) == own);
        let (mut tables, mut positions, mut norms, mut biases) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut token_types = None;
        for entry in outside.iter().filter(|entry| !is_aside(entry)) {
            let is_types = entry.shape.len() == 2 && entry.has_word(&TYPES);
            if is_types && token_types.is_none() {
                token_types = Some(entry);
                continue;
            }
            match entry.trimmed().len() {
                _ if entry.has_word(&POSITIONS) => positions.push(entry),
                1 if is_bias(&entry.words) => biases.push(entry),
                1 if entry.is_norm() => norms.push(entry),
                2 if entry.shape.len() == 2 => tables.push(entry),
                // A norm in one axis of a sequence's shape, and anything else.
                _ => return Err(unknown(facts, entry)),
            }
        }
        let map = map_of_values(&tables, &biases, width);
        let is_first = |entry: &&Entry| map.map_or(hint(entry) > 0, |map| map.first == entry.first);
        let (mut tokens, mut heads): (Vec<&Entry>, Vec<&Entry>) =
            tables.into_iter().partition(is_first);
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
        let input = match (map, is_turned) {
            (Some(_), _) => Input::Values,
            (None, true) => Input::Columns,
            (None, false) => Input::Rows,
        };
        let d_model = if input == Input::Rows {
            n_columns
        } else {
            n_rows
        };
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
            input,
            aside,
            positions: positions.first().copied(),
            token_types,
            embed_norm: embed_norms.first().copied(),
            final_norm: final_norms.first().copied(),
            head,
            dense: None,
            pooled_norm: None,
            head_norm: None,
            unused_norm: None,
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
            let parts = found.norms().into_iter().chain(found.head).chain(map);
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
