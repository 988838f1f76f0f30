//! What home-made models of pictures have before their layers: a map of patches, norms around it, and learned tokens.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::super::Facts;
use super::outside::is_of_positions;
use super::parts::twice;
use super::stack::{Entry, Stack};
use super::untold::Untold;
use crate::reading::described::names::{is_bias, stem, words_of};
use crate::reading::described::{LEARNED, PATCH_NORMS, PATCHES};

/// Words for the map of patches.
const OF_PATCHES: [&str; 6] = [
    "patch", "patches", "patchify", "patcher", "patching", "tubelet",
];
/// Words for the token whose last state is classified, for further learned tokens, and for one that only a training reads.
const CLASS: [&str; 3] = ["cls", "class", "clstoken"];
const FURTHER: [&str; 6] = [
    "reg",
    "register",
    "registers",
    "dist",
    "distill",
    "distillation",
];
const HIDDEN: [&str; 2] = ["mask", "masked"];

/// Where trainers say how large pictures are, and what the head reads.
pub const SIZES: [&str; 3] = ["image_size", "img_size", "picture_size"];
const POOLS: [&str; 3] = ["pool", "pooling", "global_pool"];

/// The key of the size of pictures among the settings.
const SIZE: &str = "picture_size";

/// The parts of a model of pictures before its layers.
pub struct Pictures {
    pub map: Entry,
    bias: Option<String>,
    /// In the order of [`PATCH_NORMS`]: gain and bias.
    norms: [Option<(Entry, Option<String>)>; 2],
    /// In the order of [`LEARNED`].
    learned: [Option<Entry>; 2],
}

impl Pictures {
    /// Takes the parts out of what stands around the layers; `None` if nothing there reads pictures.
    ///
    /// # Errors
    /// When a convolution is no map of patches, or two tensors fit the same part.
    pub fn take(facts: &mut Facts<'_>, stack: &mut Stack) -> Result<Option<Self>> {
        let Some(map) = map_of_patches(facts, stack)? else {
            return Ok(None);
        };
        let width = map.shape[0];
        let mut taken = vec![map.first.clone()];
        let mut found = Self {
            bias: bias_of(stack, &map),
            norms: [None, None],
            learned: [None, None],
            map,
        };
        taken.extend(found.bias.clone());
        for entry in stack.outside.iter().filter(|entry| is_gain(entry)) {
            let Some(place) = found.place_of_norm(stack, entry) else {
                continue;
            };
            let bias = bias_of(stack, entry);
            taken.push(entry.first.clone());
            taken.extend(bias.clone());
            if let Some((other, _)) = found.norms[place].replace((entry.clone(), bias)) {
                return Err(twice(facts, "the norm of patches", &other, entry));
            }
        }
        for entry in rows(&stack.outside, width) {
            taken.push(entry.first.clone());
            let n: usize = entry.shape.iter().product::<usize>() / width;
            if n == 0 {
                facts.tensors.forget(&entry.first);
                continue;
            }
            if entry.has_word(&HIDDEN) {
                facts.remarks.push(format!(
                    "{} was left aside: only a training puts it in the place of patches",
                    entry.first
                ));
                facts.tensors.forget(&entry.first);
                continue;
            }
            let is_further = entry.has_word(&FURTHER) || n > 1;
            if let Some(other) = found.learned[usize::from(is_further)].replace(entry.clone()) {
                return Err(twice(facts, "that learned token", &other, entry));
            }
        }
        let is_left = |entry: &Entry| !taken.contains(&entry.first);
        stack.outside.retain(is_left);
        Ok(Some(found))
    }

    /// Whether a class token stands before the patches.
    fn has_class(&self) -> bool {
        self.learned[0].is_some()
    }

    /// Which norm around the map it is: one of a patch's values, or one of its row.
    fn place_of_norm(&self, stack: &Stack, norm: &Entry) -> Option<usize> {
        let around = parent(&self.map)?;
        if parent(norm) != Some(around) {
            return None;
        }
        let n_values: usize = self.map.shape[1..].iter().product();
        let is_of_values = norm.shape == [n_values];
        let is_of_rows = norm.shape == [self.map.shape[0]];
        let numbers = [number(norm), number(&self.map)];
        if let [Some(own), Some(of_map)] = numbers {
            return if own < of_map {
                is_of_values.then_some(0)
            } else {
                is_of_rows.then_some(1)
            };
        }
        // A module of all that embeds pictures may norm the sum with positions.
        let is_inside = |entry: &&Entry| {
            let others = is_of_positions(entry) || entry.has_word(&CLASS);
            others && entry.first.starts_with(&format!("{around}."))
        };
        let is_of_patches_alone = !stack.outside.iter().any(|entry| is_inside(&entry));
        match (is_of_values, is_of_rows) {
            (true, false) => Some(0),
            (false, true) if is_of_patches_alone => Some(1),
            _ => None,
        }
    }

    /// The entries of `[tensors]`.
    pub fn tensors(&self, tensors: &mut Map<String, Value>) {
        let with_bias = |weight: &Entry, bias: &Option<String>| {
            let mut value = json!({ "weight": weight.first });
            if let Some(bias) = bias {
                value["bias"] = bias.clone().into();
            }
            value
        };
        tensors.insert(PATCHES.to_owned(), with_bias(&self.map, &self.bias));
        for (key, norm) in PATCH_NORMS.into_iter().zip(&self.norms) {
            if let Some((gain, bias)) = norm {
                tensors.insert(key.to_owned(), with_bias(gain, bias));
            }
        }
        for (key, token) in LEARNED.into_iter().zip(&self.learned) {
            if let Some(token) = token {
                tensors.insert(key.to_owned(), token.first.clone().into());
            }
        }
    }

    /// What shapes do not tell of pictures and of the head that reads them.
    pub fn settings(
        &self,
        facts: &mut Facts<'_>,
        untold: &mut Untold,
        outside: (Option<&Entry>, bool),
    ) {
        let (positions, has_head) = outside;
        if let [_, n_values] = self.map.shape[..] {
            let side = |n_channels: usize| (n_values / n_channels).isqrt();
            let is_grey = side(1) * side(1) == n_values;
            let side = if is_grey { side(1) } else { side(3) };
            let colours = if is_grey { "grey" } else { "3 colours" };
            facts.remarks.push(format!(
                "{} is read as the map of patches of {side} × {side} pixels, {colours}",
                self.map.first
            ));
            // The library that people copy this name from cuts patches so.
            let is_copied = self
                .map
                .words
                .windows(3)
                .any(|three| three == ["to", "patch", "embedding"]);
            match (is_grey, is_copied) {
                (true, _) => {}
                (false, true) => untold.put(
                    facts,
                    "patch_order",
                    json!("channels_last"),
                    "channels_last",
                ),
                (false, false) => facts.needed("patch_order", "patch_order", &["patch_order"]),
            }
        }
        self.size(facts, untold, positions);
        if !has_head {
            return;
        }
        let stated = facts.stated_anywhere(&POOLS, |value| pool(value).is_some());
        match stated.and_then(|(place, value)| Some((place, pool(&value)?))) {
            Some((place, word)) => {
                let origin = attnscope_checkpoint::Origin::Derived(place);
                facts.config.put("pooled", word, origin);
            }
            None if self.has_class() => untold.put(facts, "pooled", json!("first"), "first"),
            None => {
                // Further learned tokens are no part of the picture.
                let width = self.map.shape[0];
                let further = self.learned[1].as_ref();
                let word = match further.map(|entry| entry.shape.iter().product::<usize>() / width)
                {
                    Some(n) => format!("mean from {n}"),
                    None => "mean".to_owned(),
                };
                untold.put(facts, "pooled", json!(word), &word);
            }
        }
    }

    /// The size of pictures, stated or told by a square of positions.
    fn size(&self, facts: &mut Facts<'_>, untold: &mut Untold, positions: Option<&Entry>) {
        if let Some((place, value)) = facts.stated_anywhere(&SIZES, |value| sides(value).is_some())
        {
            let origin = attnscope_checkpoint::Origin::Derived(place);
            facts
                .config
                .put(SIZE, sides(&value).unwrap_or_default(), origin);
            return;
        }
        let Some(positions) = positions else {
            return facts.needed(SIZE, SIZE, &[]);
        };
        let width = self.map.shape[0];
        let n_rows = |entry: &Entry| entry.shape.iter().product::<usize>() / width;
        let n_learned: Vec<usize> = self.learned.iter().flatten().map(n_rows).collect();
        let of_class = usize::from(self.has_class());
        let is_grid = positions.trimmed().len() == 3;
        let is_square = |n: &usize| {
            let n_patches = n_rows(positions).saturating_sub(*n);
            n_patches > 0 && n_patches.isqrt().pow(2) == n_patches
        };
        let all = n_learned.iter().sum();
        if is_grid || [all, of_class, 0].iter().any(is_square) {
            // Patches that overlap or leave pixels out would make other pictures of the same positions.
            untold.name(SIZE, "patches side by side");
        } else {
            facts.needed(SIZE, SIZE, &[]);
        }
    }
}

/// What a head reads, by a word of its trainer.
fn pool(value: &Value) -> Option<&'static str> {
    match value.as_str()? {
        "cls" | "token" | "class" | "first" => Some("first"),
        "mean" | "avg" | "gap" => Some("mean"),
        _ => None,
    }
}

/// Rows and columns as settings write them.
fn sides(value: &Value) -> Option<String> {
    let side = |value: &Value| value.as_u64().filter(|n| *n > 0);
    match value {
        Value::Number(_) => side(value).map(|n| n.to_string()),
        Value::Array(both) => match both[..] {
            [ref rows, ref columns] => Some(format!("{} {}", side(rows)?, side(columns)?)),
            _ => None,
        },
        _ => None,
    }
}

/// The kernel of the convolution, or the matrix, that reads patches.
fn map_of_patches(facts: &Facts<'_>, stack: &Stack) -> Result<Option<Entry>> {
    let kernels: Vec<&Entry> = stack
        .outside
        .iter()
        .filter(|entry| entry.shape.len() == 4 && entry.shape[0] != 1)
        .collect();
    match kernels[..] {
        [] => {}
        [one] => {
            let [width, n_channels, ..] = one.shape[..] else {
                return Ok(None);
            };
            let problem = match stack.width() {
                _ if ![1, 3].contains(&n_channels) => {
                    format!(
                        "maps {n_channels} channels; expected pictures of 1 channel, grey, or of 3 colours"
                    )
                }
                Some(d_model) if d_model != width => {
                    format!("maps patches to {width} values; expected the {d_model} of the layers")
                }
                _ => return Ok(Some(one.clone())),
            };
            return Err(facts.at(&one.first, problem));
        }
        [.., last] => {
            let problem = format!(
                "stands beside {}; expected one convolution, whose kernel maps patches: others are not read",
                kernels[0].first
            );
            return Err(facts.at(&last.first, problem));
        }
    }
    let Some(width) = stack.width() else {
        return Ok(None);
    };
    let is_map = |entry: &&Entry| {
        let fits =
            matches!(entry.shape[..], [n, n_values] if n == width && is_square_patch(n_values));
        fits && !is_places(entry, width)
    };
    let maps: Vec<&Entry> = stack.outside.iter().filter(is_map).collect();
    let named = maps.iter().find(|entry| entry.has_word(&OF_PATCHES));
    let is_said = facts.overrides.has(SIZE)
        || facts
            .stated_anywhere(&SIZES, |value| sides(value).is_some())
            .is_some();
    let is_class = |entry: &Entry| entry.has_word(&CLASS) && !entry.shape.contains(&0);
    let has_class = rows(&stack.outside, width).any(is_class);
    let is_copied = named.is_some_and(|entry| entry.words.starts_with(&["to".to_owned()]));
    let found = match (named, &maps[..]) {
        _ if !is_said && !has_class && !is_copied => None,
        (Some(named), _) => Some(*named),
        (None, [one]) if one.shape[1] != width => Some(*one),
        _ => None,
    };
    Ok(found.cloned())
}

/// Whether so many values are those of a square patch, grey or of three colours.
pub fn is_square_patch(n_values: usize) -> bool {
    [1, 3].iter().any(|n_channels| {
        let side = (n_values / n_channels).isqrt();
        side > 0 && n_channels * side * side == n_values
    })
}

/// Learned rows: parameters as wide as the model, or several times so, which no module has.
fn rows(outside: &[Entry], width: usize) -> impl Iterator<Item = &Entry> {
    outside.iter().filter(move |entry| {
        let n: usize = entry.shape.iter().product();
        if entry.shape.last() != Some(&width) || is_places(entry, width) {
            return false;
        }
        let own = words_of(entry.first.rsplit('.').next().unwrap_or_default());
        let is_named = |words: &[&str]| own.iter().any(|word| words.contains(&word.as_str()));
        match entry.shape.len() {
            1 => is_named(&CLASS),
            // Code that takes the mean of patches may keep no class tokens as a table without rows.
            _ if n == width || n == 0 => true,
            3 => entry.trimmed().len() == 2 && (is_named(&FURTHER) || is_named(&CLASS)),
            _ => is_named(&FURTHER),
        }
    })
}

/// Whether a tensor is a table of positions: by its name, if that of the parameter itself does not say a class token.
pub fn is_places(entry: &Entry, width: usize) -> bool {
    let own = words_of(entry.first.rsplit('.').next().unwrap_or_default());
    let is_one_row = entry.shape.iter().product::<usize>() == width;
    let is_class = is_one_row && own.iter().any(|word| CLASS.contains(&word.as_str()));
    is_of_positions(entry) && !is_class
}

/// Whether a vector is the gain of a norm: the weight of a module that has no matrix.
pub fn is_gain(entry: &Entry) -> bool {
    entry.shape.len() == 1
        && !is_bias(&entry.words)
        && (entry.is_norm() || entry.first.ends_with(".weight"))
}

/// The bias beside a weight.
fn bias_of(stack: &Stack, entry: &Entry) -> Option<String> {
    let own = stem(&entry.words);
    let is_its = |other: &&Entry| {
        other.shape.len() == 1 && is_bias(&other.words) && stem(&other.words) == own
    };
    stack
        .outside
        .iter()
        .find(is_its)
        .map(|bias| bias.first.clone())
}

/// The module that holds the module of a tensor; `None` at the top.
pub fn parent(entry: &Entry) -> Option<&str> {
    let (module, _) = entry.first.rsplit_once('.')?;
    module.rsplit_once('.').map(|(parent, _)| parent)
}

/// The number of the module of a tensor in a sequence.
pub fn number(entry: &Entry) -> Option<usize> {
    let (module, _) = entry.first.rsplit_once('.')?;
    let last = module.rsplit('.').next()?;
    last.parse().ok()
}
