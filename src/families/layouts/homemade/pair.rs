//! Encoder–decoders in names of their author's own: two lists of layers, and two attentions in each layer of the second one.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::super::Facts;
use super::HomeMade;
use super::buffers::Buffers;
use super::outside::{is_of_positions, is_of_tokens};
use super::parts::Parts;
use super::stack::{Entry, Stack, all_of, groups_of, start_of};
use super::values::stated;
use crate::reading::described::names::{Role, is_named, is_of_attention, words_of};
use crate::reading::described::{CROSS, ENCODER};

/// Words that name the side of the source, and of the target.
const SOURCE: [&str; 9] = [
    "encoder", "encoders", "enc", "src", "source", "input", "inp", "inputs", "x",
];
const TARGET: [&str; 10] = [
    "decoder", "decoders", "dec", "tgt", "trg", "target", "output", "out", "outputs", "y",
];

/// Words of a decoder's attention to its encoder, and of its own.
const TO_ENCODER: [&str; 12] = [
    "cross",
    "enc",
    "encoder",
    "encdec",
    "src",
    "source",
    "memory",
    "mem",
    "inter",
    "context",
    "crossattn",
    "xattn",
];
const TO_ITSELF: [&str; 5] = ["self", "masked", "causal", "selfattn", "slf"];

/// The key of the token that a target begins with.
const START: &str = "decoder_start_token_id";

/// What trainers call the id that a decoder's input begins with.
const STARTS: [&str; 8] = [
    "start_token",
    "bos_idx",
    "sos_idx",
    "BOS",
    "SOS",
    "bos",
    "sos",
    "bos_token_id",
];

/// What a decoder has that a single stack has not.
pub struct Pair {
    pub encoder: Stack,
    /// The decoder's attention to the encoder.
    pub cross: Vec<Entry>,
}

impl Pair {
    /// The decoder with what stands beside it; `None` unless one list of layers is called an encoder and the other a decoder.
    ///
    /// # Errors
    /// When layers of a list differ, or the names do not tell which attention is that to the encoder.
    pub fn of(facts: &Facts<'_>) -> Result<Option<(Stack, Self)>> {
        let all = all_of(facts);
        let (groups, others) = groups_of(&all);
        if groups.len() != 2 || groups.values().any(|layers| start_of(layers).is_none()) {
            return Ok(None);
        }
        let (mut encoders, mut decoders) = (Vec::new(), Vec::new());
        for (before, layers) in groups {
            match side_of(&words_of(before)) {
                Some(Side::Source) => encoders.push((before, layers)),
                Some(Side::Target) => decoders.push((before, layers)),
                None => return Ok(None),
            }
        }
        let (Some(encoder), Some(decoder)) = (encoders.pop(), decoders.pop()) else {
            return Ok(None);
        };
        let is_of = |entry: &Entry, before: &str| entry.first.starts_with(before);
        let (in_encoder, in_decoder) = (encoder.0.to_owned(), decoder.0.to_owned());
        let mut encoder = Stack::listed(facts, &all, encoder, others.clone())?;
        let mut decoder = Stack::listed(facts, &all, decoder, others)?;
        // What neither stack has in its layers stands around both of them.
        let around: Vec<Entry> = encoder
            .outside
            .iter()
            .filter(|entry| !is_of(entry, &in_decoder))
            .filter(|entry| decoder.outside.iter().any(|own| own.first == entry.first))
            .filter(|entry| !is_of(entry, &in_encoder))
            .cloned()
            .collect();
        encoder.outside = beside(&around, Side::Source);
        decoder.outside = beside(&around, Side::Target);
        let Some(cross) = cross_of(facts, &mut decoder.layer)? else {
            return Ok(None);
        };
        Ok(Some((decoder, Self { encoder, cross })))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

/// The side that a name tells. The encoder of positions is no side.
fn side_of(words: &[String]) -> Option<Side> {
    let is_of_positions =
        |at: usize| at > 0 && ["pos", "position", "positional"].contains(&words[at - 1].as_str());
    let named = |(at, word): (usize, &String)| match word.as_str() {
        word if SOURCE.contains(&word) && !is_of_positions(at) => Some(Side::Source),
        word if TARGET.contains(&word) => Some(Side::Target),
        _ => None,
    };
    words.iter().enumerate().find_map(named)
}

/// Words that name a stack, and no part of it.
const STACKS: [&str; 6] = ["encoder", "encoders", "enc", "decoder", "decoders", "dec"];

/// The entries around one of two stacks: its own, and for each kind that it has none of, those without a side.
fn beside(around: &[Entry], side: Side) -> Vec<Entry> {
    let side_at = |entry: &Entry| side_of(&words_of(&entry.first));
    let is_own = |entry: &&Entry| side_at(entry) == Some(side);
    let is_shared = |entry: &&Entry| side_at(entry).is_none();
    let mut around = around.to_vec();
    for entry in around.iter_mut().filter(|entry| side_at(entry).is_some()) {
        entry.words.retain(|word| !STACKS.contains(&word.as_str()));
    }
    let kinds: [fn(&Entry) -> bool; 2] = [is_of_tokens, is_of_positions];
    let mut found = Vec::new();
    for is_kind in kinds {
        let of_kind: Vec<&Entry> = around.iter().filter(|entry| is_kind(entry)).collect();
        let own: Vec<&Entry> = of_kind.iter().copied().filter(|e| is_own(e)).collect();
        let shared = of_kind.into_iter().filter(|entry| is_shared(entry));
        let chosen: Vec<&Entry> = if own.is_empty() {
            shared.collect()
        } else {
            own
        };
        found.extend(chosen.into_iter().cloned());
    }
    let is_other = |entry: &&Entry| !kinds.iter().any(|is_kind| is_kind(entry));
    // The head and a norm without a side are those of the stack that writes.
    let others = around.iter().filter(is_other);
    let others = others.filter(|entry| is_own(entry) || side == Side::Target && is_shared(entry));
    found.extend(others.cloned());
    found
}

/// Takes the attention to the encoder out of a decoder's layer; `None` if it has no second attention.
///
/// # Errors
/// When the names do not tell which of two it is.
fn cross_of(facts: &Facts<'_>, layer: &mut Vec<Entry>) -> Result<Option<Vec<Entry>>> {
    let attends = |entry: &Entry| {
        let maps = [Role::Q, Role::K, Role::V, Role::Qkv, Role::Kv];
        let is_map = maps.iter().any(|role| is_named(*role, &entry.words));
        !entry.is_norm() && (is_of_attention(&entry.words) || is_map)
    };
    let Some(modules) = two_modules(layer.iter().filter(|entry| attends(entry))) else {
        return Ok(None);
    };
    let Some(module) = to_encoder(facts, layer, &modules) else {
        let problem = format!(
            "attends in {} and in {}; their names do not tell which one attends to the encoder: [tensors.cross] in attnscope.toml says",
            modules[0], modules[1]
        );
        let first = layer.first().map_or("", |entry| &entry.first);
        return Err(facts.at(first, problem));
    };
    let norm = norm_of_cross(facts, layer, &module);
    let is_cross = |entry: &Entry| {
        is_inside(entry, &module) || norm.as_ref().is_some_and(|norm| is_inside(entry, norm))
    };
    let (cross, own): (Vec<Entry>, Vec<Entry>) = layer.drain(..).partition(is_cross);
    *layer = own;
    Ok(Some(cross))
}

fn is_inside(entry: &Entry, module: &str) -> bool {
    let rest = entry.template.strip_prefix(module);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The two modules in which a layer attends: the first parts of the names that are of two kinds.
fn two_modules<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<[String; 2]> {
    let names: Vec<Vec<&str>> = entries.map(|e| e.template.split('.').collect()).collect();
    let shortest = names.iter().map(Vec::len).min()?;
    for depth in 1..shortest {
        let mut found: Vec<String> = Vec::new();
        for name in &names {
            let module = name[..depth].join(".");
            if !found.contains(&module) {
                found.push(module);
            }
        }
        match <[String; 2]>::try_from(found) {
            Ok(two) => return Some(two),
            Err(found) if found.len() > 2 => return None,
            Err(_) => {}
        }
    }
    None
}

/// Which of two modules attends to the encoder: by words, by numbers, or by the order in which they were saved.
fn to_encoder(facts: &Facts<'_>, layer: &[Entry], modules: &[String; 2]) -> Option<String> {
    let last = |module: &String| words_of(module.rsplit('.').next().unwrap_or_default());
    let words = modules.each_ref().map(last);
    let has = |list: &[&str]| {
        words
            .each_ref()
            .map(|words: &Vec<String>| words.iter().any(|w| list.contains(&w.as_str())))
    };
    let first_saved = |module: &String| {
        let entries = layer.iter().filter(|entry| is_inside(entry, module));
        entries
            .filter_map(|entry| facts.tensors.saved_at(&entry.first))
            .min()
    };
    let number = |words: &Vec<String>| {
        words
            .iter()
            .rev()
            .find_map(|word| word.parse::<usize>().ok())
    };
    let second = match (has(&TO_ITSELF), has(&TO_ENCODER)) {
        ([true, false], _) | (_, [false, true]) => 1,
        ([false, true], _) | (_, [true, false]) => 0,
        // A name without a number is that of the first.
        _ if words.each_ref().map(number).iter().flatten().count() > 0 => {
            let [a, b] = words.each_ref().map(|words| number(words).unwrap_or(0));
            usize::from(a < b)
        }
        _ => {
            let [a, b] = modules.each_ref().map(first_saved);
            usize::from(a? < b?)
        }
    };
    Some(modules[second].clone())
}

/// The module of the norm of the attention to the encoder, where it stands outside of it: by its name, or as the second of three.
fn norm_of_cross(facts: &Facts<'_>, layer: &[Entry], module: &str) -> Option<String> {
    let parent = |entry: &Entry| {
        entry
            .template
            .rsplit_once('.')
            .map(|(parent, _)| parent.to_owned())
    };
    let mut norms: Vec<(&Entry, String)> = Vec::new();
    for entry in layer
        .iter()
        .filter(|entry| entry.is_norm() && entry.shape.len() == 1)
    {
        let Some(parent) = parent(entry).filter(|_| !is_inside(entry, module)) else {
            continue;
        };
        if !norms.iter().any(|(_, known)| *known == parent) {
            norms.push((entry, parent));
        }
    }
    let called: Vec<&(&Entry, String)> = norms
        .iter()
        .filter(|(entry, _)| entry.has_word(&TO_ENCODER))
        .collect();
    if let [(_, name)] = called[..] {
        return Some(name.clone());
    }
    if norms.len() != 3 {
        return None;
    }
    let numbers = |entry: &Entry| -> Vec<usize> {
        entry
            .words
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let saved = |entry: &Entry| facts.tensors.saved_at(&entry.first);
    norms.sort_by_key(|(entry, _)| (numbers(entry), saved(entry)));
    Some(norms[1].1.clone())
}

/// The encoder of a decoder, and the decoder's attention to it.
pub struct Beside<'a> {
    encoder: HomeMade<'a>,
    cross: Parts<'a>,
}

impl<'a> Beside<'a> {
    /// `None` if no table is that of the encoder's tokens.
    ///
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    pub(super) fn of(
        facts: &Facts<'_>,
        pair: &'a Pair,
        buffers: &'a Buffers,
        d_model: usize,
    ) -> Result<Option<Self>> {
        let Some(encoder) = HomeMade::of(facts, &pair.encoder, buffers, None)? else {
            return Ok(None);
        };
        let cross = Parts::of(facts, &pair.cross, d_model)?;
        Ok(Some(Self { encoder, cross }))
    }

    /// Puts both beside the decoder's parts, and asks for what the names do not tell.
    ///
    /// # Errors
    /// When a tensor of several axes can be read in two ways.
    pub(super) fn describe(
        &self,
        facts: &mut Facts<'_>,
        tensors: &mut Map<String, Value>,
        is_norm_first: bool,
    ) -> Result<()> {
        let mut cross: Map<String, Value> = Map::new();
        for (key, value) in self.cross.tensors(facts, self.encoder.d_model)? {
            cross.insert(key.to_owned(), value);
        }
        let place = if is_norm_first { "pre" } else { "post" };
        if let Some(norm) = self.cross.norms.first() {
            let of_maps = self.cross.q.or(self.cross.qkv).map(|entry| &entry.template);
            let module = |name: &str| name.rsplitn(3, '.').last().map(str::to_owned);
            if is_norm_first && of_maps.and_then(|maps| module(maps)) == module(&norm.template) {
                let problem = "stands inside the decoder's attention to the encoder, where it may norm the encoder's output too, \
                               which is not read"
                    .to_owned();
                return Err(facts.at(&norm.first, problem));
            }
            cross.insert(place.to_owned(), self.cross.with_bias(norm));
        }
        // What is said of the decoder's heads holds for the encoder's too.
        let apart = self.encoder.stack.layer.iter();
        let mut apart = apart.filter_map(|entry| Some((entry, entry.n_heads?)));
        if let (Some((entry, n)), Some(expected)) = (apart.next(), facts.size("n_heads", "n_heads"))
            && n != expected
        {
            let problem =
                format!("{n} heads in the encoder, {expected} in the decoder; expected as many");
            return Err(facts.at(&entry.first, problem));
        }
        let mut encoder = self.encoder.tensors(facts, is_norm_first)?;
        encoder.insert(
            "set".to_owned(),
            json!({ "n_layers": self.encoder.stack.n_layers }),
        );
        tensors.insert(CROSS.to_owned(), cross.into());
        tensors.insert(ENCODER.to_owned(), encoder.into());
        match stated(facts, &STARTS) {
            Some((place, start)) if !facts.overrides.has("start_token") => {
                let origin = attnscope_checkpoint::Origin::Derived(place);
                facts.config.put(START, start, origin);
            }
            _ => facts.needed("start_token", START, &[]),
        }
        Ok(())
    }
}
