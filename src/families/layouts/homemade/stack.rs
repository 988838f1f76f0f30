//! Finds the layers of a model in the numbers of its names: one entry for each tensor of a layer, with a placeholder for the number.

use std::collections::BTreeMap;

use attnscope_compute::error::Result;

use super::super::Facts;
use super::buffers::is_of_mask;
use crate::reading::described::names::{
    Role, is_named, is_of_attention, is_of_feed_forward, words_of,
};
use crate::reading::described::{HEAD, written_hole};

/// Name and shape of a tensor.
pub(super) type Named<'a> = (&'a str, &'a [usize]);

/// The tensors of each member of a list.
pub(super) type Layers<'a> = BTreeMap<usize, Vec<Named<'a>>>;

/// Lists by the name that stands before their numbers.
pub(super) type Groups<'a> = BTreeMap<&'a str, Layers<'a>>;

/// Words of feed-forward modules that stand outside a list of layers.
const FEED_FORWARD: [&str; 6] = ["mlp", "ffn", "ff", "feed", "ffwd", "feedforward"];

/// A tensor of every layer, or one outside the layers.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name, with placeholders for the numbers of layer and head.
    pub template: String,
    /// The name in the first layer, of the first head.
    pub first: String,
    /// The words of the name behind the layer's number.
    pub words: Vec<String>,
    pub shape: Vec<usize>,
    /// The number of tensors, if each head has its own.
    pub n_heads: Option<usize>,
}

impl Entry {
    fn of(name: &str, after: &str, shape: &[usize]) -> Self {
        Self {
            template: name.to_owned(),
            first: name.to_owned(),
            words: words_of(after),
            shape: shape.to_vec(),
            n_heads: None,
        }
    }

    /// The shape without leading axes of length one.
    pub fn trimmed(&self) -> &[usize] {
        let n = self.shape.iter().take_while(|n| **n == 1).count();
        &self.shape[n.min(self.shape.len().saturating_sub(1))..]
    }

    pub fn has_word(&self, words: &[&str]) -> bool {
        self.words.iter().any(|word| words.contains(&word.as_str()))
    }

    /// Whether the name is that of a norm.
    pub fn is_norm(&self) -> bool {
        let is_of_norm = |word: &String| {
            word.contains("norm")
                || word.starts_with("rms")
                || matches!(word.as_str(), "ln" | "lnf")
        };
        self.words.iter().any(is_of_norm)
    }
}

/// The layers, and what stands around them.
pub struct Stack {
    pub n_layers: usize,
    /// Whether the names number the layers; otherwise the model has a single one.
    pub is_numbered: bool,
    pub layer: Vec<Entry>,
    pub outside: Vec<Entry>,
}

impl Stack {
    /// `None` if no tensors, or those of several stacks, look like layers with attention.
    ///
    /// # Errors
    /// When a layer is missing or differs from the first one.
    pub fn of(facts: &Facts<'_>) -> Result<Option<Self>> {
        let all = all_of(facts);
        let (groups, others) = groups_of(&all);
        if groups.len() > 1 {
            return Ok(None);
        }
        let Some((before, layers)) = groups.into_iter().next() else {
            return Self::single(facts, &all);
        };
        if start_of(&layers).is_none() {
            return Ok(None);
        }
        Self::listed(facts, &all, (before, layers), others).map(Some)
    }

    /// The stack whose attention is in this list.
    ///
    /// # Errors
    /// When a layer is missing or differs from the first one.
    pub(super) fn listed(
        facts: &Facts<'_>,
        all: &[(String, Vec<usize>)],
        (before, mut layers): (&str, Layers<'_>),
        others: Groups<'_>,
    ) -> Result<Self> {
        // The sequence of the layers may end with the last norm.
        let is_norm = |tensors: &Vec<Named<'_>>| tensors.iter().all(|(_, shape)| shape.len() == 1);
        let last = layers.last_entry().filter(|last| is_norm(last.get()));
        let last_norm = last.map(|last| format!("{before}{}.", last.remove_entry().0));
        let n_layers = layers.len();
        let start = start_of(&layers).unwrap_or(0);
        let mut lists: Vec<(&str, Layers<'_>)> = others
            .into_iter()
            .filter(|(other, found)| is_beside(other, before) && found.len() == n_layers)
            .collect();
        // The name of a list tells what is in it, where there are several.
        let is_apart = !lists.is_empty();
        lists.insert(0, (before, layers));
        let mut layer = Vec::new();
        for (before, layers) in &lists {
            let first = alike(facts, before, layers, start)?;
            let list = if is_apart { last_part(before) } else { "" };
            layer.extend(first.iter().map(|(after, shape)| {
                let name = format!("{before}{start}.{after}");
                let mut entry = Entry::of(&name, &format!("{list}.{after}"), shape);
                entry.template = format!("{before}{}.{after}", written_hole(1, start));
                entry
            }));
        }
        let layer = by_heads(facts, layer)?;
        let is_listed = |found: &str| lists.iter().any(|(before, _)| *before == found);
        let is_last = |name: &str| {
            let last_norm = last_norm.as_ref();
            last_norm.is_some_and(|module| name.starts_with(module.as_str()))
        };
        let outside = all.iter().filter(|(name, _)| {
            is_last(name) || numbered(name).is_none_or(|(found, ..)| !is_listed(found))
        });
        let outside = outside.map(|(name, shape)| Entry::of(name, name, shape));
        Ok(Self {
            n_layers,
            is_numbered: true,
            layer,
            outside: outside.collect(),
        })
    }

    /// The width of the residual, if a norm or a joint map of a layer tells it.
    pub fn width(&self) -> Option<usize> {
        let norms = self.layer.iter().filter(|entry| entry.is_norm());
        let of_norm = norms
            .map(|entry| &entry.shape[..])
            .find_map(|shape| match shape {
                [n] => Some(*n),
                _ => None,
            });
        of_norm.or_else(|| {
            self.layer.iter().find_map(|entry| match entry.shape[..] {
                [n_rows, n] if n_rows == 3 * n => Some(n),
                _ => None,
            })
        })
    }

    /// A model of a single layer without a number.
    fn single(facts: &Facts<'_>, all: &[(String, Vec<usize>)]) -> Result<Option<Self>> {
        let entries = all.iter().map(|(name, shape)| Entry::of(name, name, shape));
        let (layer, outside): (Vec<Entry>, Vec<Entry>) = entries
            .partition(|entry| is_of_attention(&entry.words) || entry.has_word(&FEED_FORWARD));
        if !layer.iter().any(|entry| is_of_attention(&entry.words)) {
            return Ok(None);
        }
        Ok(Some(Self {
            n_layers: 1,
            is_numbered: false,
            layer: by_heads(facts, layer)?,
            outside,
        }))
    }
}

/// Name and shape of every tensor.
pub(super) fn all_of(facts: &Facts<'_>) -> Vec<(String, Vec<usize>)> {
    let all = facts.tensors.iter();
    all.map(|(name, info)| (name.to_owned(), info.shape.clone()))
        .collect()
}

/// The lists of modules that are numbered: those with attention, and all others.
pub(super) fn groups_of(all: &[(String, Vec<usize>)]) -> (Groups<'_>, Groups<'_>) {
    let mut groups = Groups::new();
    for (name, shape) in all {
        if let Some((before, number, after)) = numbered(name) {
            let group = groups.entry(before).or_default();
            group.entry(number).or_default().push((after, shape));
        }
    }
    groups.into_iter().partition(|(before, layers)| {
        let attends = |after: &str| {
            let words = words_of(after);
            let roles = [Role::Q, Role::Qkv];
            is_of_attention(&words) || roles.iter().any(|role| is_named(*role, &words))
        };
        let mut tensors = layers.values().flatten();
        !ends_in_heads(before) && tensors.any(|(after, _)| attends(after))
    })
}

/// The number of the first layer: 0, or 1 as in `layer_1`.
pub(super) fn start_of(layers: &Layers<'_>) -> Option<usize> {
    layers.keys().next().copied().filter(|first| *first < 2)
}

/// The tensors of the first layer of a list.
///
/// # Errors
/// When a layer is missing or differs from the first one.
fn alike<'a, 'b>(
    facts: &Facts<'_>,
    before: &str,
    layers: &'b Layers<'a>,
    start: usize,
) -> Result<&'b [Named<'a>]> {
    let first = layers.values().next().map_or(&[][..], Vec::as_slice);
    for (idx, (number, tensors)) in layers.iter().enumerate() {
        let other = tensors.iter().zip(first).find(|(a, b)| a != b);
        if start + idx != *number || tensors.len() != first.len() || other.is_some() {
            let after = other.map_or(first[0].0, |((after, _), _)| after);
            let problem = format!("expected layers that are alike and numbered from {start}");
            return Err(facts.at(&format!("{before}{number}.{after}"), problem));
        }
    }
    Ok(first)
}

/// Whether a list stands beside that of attention, in the same module, and has feed-forward layers or norms by its name.
fn is_beside(other: &str, before: &str) -> bool {
    let parent = |list: &str| {
        let last = format!("{}.", last_part(list));
        list.strip_suffix(&last).map(str::to_owned)
    };
    let is_same = parent(other).is_some() && parent(other) == parent(before);
    let entry = Entry::of(other, last_part(other), &[]);
    is_same && (entry.is_norm() || is_of_feed_forward(&entry.words))
}

/// The last part of what stands before a number, `blocks` of `decoder.blocks.`.
fn last_part(before: &str) -> &str {
    let before = before.strip_suffix('.').unwrap_or(before);
    before.rsplit('.').next().unwrap_or_default()
}

/// Words of layers that carry their number in their own name, as in `layer_1` or `block2`.
const NUMBERED: [&str; 8] = [
    "layer",
    "layers",
    "block",
    "blocks",
    "blk",
    "transformer",
    "encoder",
    "decoder",
];

/// Splits a name around the first number of a list: a part of its own, or the end of a layer's name.
fn numbered(name: &str) -> Option<(&str, usize, &str)> {
    let mut start = 0;
    for part in name.split('.') {
        let end = start + part.len();
        let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_layer = || {
            let words = words_of(word);
            words
                .last()
                .is_some_and(|last| NUMBERED.contains(&last.as_str()))
        };
        let is_number = word.len() < part.len() && (word.is_empty() || is_layer());
        if is_number && end < name.len() {
            let at = start + word.len();
            return Some((&name[..at], name[at..end].parse().ok()?, &name[end + 1..]));
        }
        start = end + 1;
    }
    None
}

/// Whether the last part of what stands before a number says that heads are counted.
fn ends_in_heads(before: &str) -> bool {
    let words = words_of(last_part(before));
    words
        .last()
        .is_some_and(|word| word == "heads" || word == "head")
}

/// Joins the tensors of single heads.
///
/// # Errors
/// When the heads differ in shape.
fn by_heads(facts: &Facts<'_>, entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let found: Vec<Option<OfHead>> = entries.iter().map(|e| head_of(&e.template)).collect();
    // A list of one module that is not called heads may be a sequence around all of attention.
    let is_list = |one: &OfHead| {
        let is_second = |other: &OfHead| other.template == one.template && other.idx > 0;
        one.is_called_head || found.iter().flatten().any(is_second)
    };
    let mut joined: Vec<Entry> = Vec::new();
    for (mut entry, of_head) in entries.into_iter().zip(&found) {
        let Some(OfHead { template, idx, .. }) = of_head.as_ref().filter(|one| is_list(one)) else {
            joined.push(entry);
            continue;
        };
        match joined.iter_mut().find(|other| other.template == *template) {
            None => {
                (entry.template, entry.n_heads) = (template.clone(), Some(1));
                if let Some(first) = head_of(&entry.first) {
                    entry.first = first.template.replace(HEAD, "0");
                }
                joined.push(entry);
            }
            Some(first) if first.shape == entry.shape => {
                first.n_heads = first.n_heads.max(Some(idx + 1));
            }
            Some(_) => {
                let problem = "expected heads of one shape".to_owned();
                return Err(facts.at(&entry.first, problem));
            }
        }
    }
    Ok(joined)
}

/// The tensor of a single head.
struct OfHead {
    /// The name with a placeholder for the head's number.
    template: String,
    idx: usize,
    /// Whether the list is called heads, and not attention.
    is_called_head: bool,
}

fn head_of(template: &str) -> Option<OfHead> {
    let parts: Vec<&str> = template.split('.').collect();
    let is_of_map = |after: &[&str]| {
        let words = words_of(&after.join("."));
        let maps = [Role::Q, Role::K, Role::V];
        maps.iter().any(|role| is_named(*role, &words)) || words.iter().any(|w| is_of_mask(w))
    };
    let at = (1..parts.len()).find(|at| {
        let is_number = parts[*at].bytes().all(|b| b.is_ascii_digit());
        let is_attention = is_of_attention(&words_of(parts[at - 1]));
        is_number && (ends_in_heads(parts[at - 1]) || is_attention && is_of_map(&parts[at + 1..]))
    })?;
    let idx = parts[at].parse().ok()?;
    let is_called_head = ends_in_heads(parts[at - 1]);
    let mut named = parts.clone();
    named[at] = HEAD;
    Some(OfHead {
        template: named.join("."),
        idx,
        is_called_head,
    })
}
