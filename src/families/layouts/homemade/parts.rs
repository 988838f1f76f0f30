//! Gives every tensor of a layer its part, by the words of its name and by its shape.

use attnscope_compute::error::{Error, Result};
use serde_json::{Value, json};

use super::super::Facts;
use super::order::{in_order, nearness, number, odd_one};
use super::pictures::is_gain;
use super::stack::Entry;
use crate::reading::described::names::{
    Role, is_bias, is_named, is_of_attention, is_of_feed_forward, stem,
};

/// How a fused tensor orders its parts.
const ORDERS: [(&str, &str); 4] = [
    ("kqv", "k q v"),
    ("vkq", "v k q"),
    ("qvk", "q v k"),
    ("vk", "v k"),
];

/// The parts of a layer.
#[derive(Default)]
pub struct Parts<'a> {
    pub q: Option<&'a Entry>,
    pub k: Option<&'a Entry>,
    pub v: Option<&'a Entry>,
    pub kv: Option<&'a Entry>,
    pub qkv: Option<&'a Entry>,
    pub o: Option<&'a Entry>,
    pub gate: Option<&'a Entry>,
    pub up: Option<&'a Entry>,
    pub down: Option<&'a Entry>,
    /// Norms of the two branches, that of attention first.
    pub norms: Vec<&'a Entry>,
    pub q_norm: Option<&'a Entry>,
    pub k_norm: Option<&'a Entry>,
    biases: Vec<&'a Entry>,
    /// Whether the first of two alike maps was taken for the gate without a name that says so.
    pub gate_is_assumed: bool,
    /// Whether matrices are stored as [in, out]; `None` if no shape tells.
    pub is_input_major: Option<bool>,
}

/// The error for a tensor that has no part.
pub fn unknown(facts: &Facts<'_>, entry: &Entry) -> Error {
    let shape = &entry.shape;
    let problem = format!(
        "{shape:?} fits no part of a model by its name and shape; --set family=NAME reads weights of a known \
         family, [tensors] in attnscope.toml describes others, and attnscope guess finds out from text what they are"
    );
    facts.at(&entry.first, problem)
}

/// The error for two tensors that fit the same part.
pub fn twice(facts: &Facts<'_>, part: &str, one: &Entry, other: &Entry) -> Error {
    let problem = format!(
        "{} could be {part} as well; [tensors] in attnscope.toml says which is",
        other.first
    );
    facts.at(&one.first, problem)
}

impl<'a> Parts<'a> {
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    pub fn of(facts: &Facts<'_>, layer: &'a [Entry], d_model: usize) -> Result<Self> {
        let mut parts = Self::default();
        let (mut of_attention, mut of_feed_forward) = (Vec::new(), Vec::new());
        let (mut neutral, mut norms) = (Vec::new(), Vec::new());
        for entry in layer {
            let words = &entry.words;
            if entry.shape.len() < 2 {
                match (is_bias(words), is_gain(entry), entry.shape.len()) {
                    (true, _, 1) => parts.biases.push(entry),
                    (false, true, 1) => norms.push(entry),
                    _ => return Err(unknown(facts, entry)),
                }
                continue;
            }
            if entry.is_norm() {
                return Err(unknown(facts, entry));
            }
            let attends = is_of_attention(words);
            if is_of_feed_forward(words) && !attends {
                of_feed_forward.push(entry);
                continue;
            }
            let is_fused = is_named(Role::Qkv, words)
                || words
                    .windows(2)
                    .any(|pair| pair == ["in", "proj"] || pair == ["c", "attn"]);
            let named = [Role::Q, Role::K, Role::V].map(|role| is_named(role, words));
            let place = match named {
                _ if is_fused => &mut parts.qkv,
                _ if is_named(Role::Kv, words) => &mut parts.kv,
                [true, false, false] => &mut parts.q,
                [false, true, false] => &mut parts.k,
                [false, false, true] => &mut parts.v,
                [false, false, false] if attends => {
                    of_attention.push(entry);
                    continue;
                }
                [false, false, false] => {
                    neutral.push(entry);
                    continue;
                }
                _ => return Err(unknown(facts, entry)),
            };
            if let Some(other) = place.replace(entry) {
                return Err(twice(facts, "that part of attention", other, entry));
            }
        }
        let Some(first) = layer.first() else {
            return Ok(parts);
        };
        parts.attention(facts, of_attention, &mut neutral, (first, d_model))?;
        of_feed_forward.extend(neutral);
        parts.feed_forward(facts, of_feed_forward, d_model)?;
        parts.norms(facts, norms, d_model)?;
        parts.check_biases(facts)?;
        Ok(parts)
    }

    /// Finds the output map, and queries, keys and values in one tensor without a name for it.
    fn attention(
        &mut self,
        facts: &Facts<'_>,
        mut left: Vec<&'a Entry>,
        neutral: &mut Vec<&'a Entry>,
        (first, d_model): (&'a Entry, usize),
    ) -> Result<()> {
        let has_none =
            self.q.is_none() && self.k.is_none() && self.v.is_none() && self.qkv.is_none();
        if has_none {
            let is_wide =
                |entry: &&Entry| entry.shape.contains(&(3 * d_model)) && entry.shape.len() == 2;
            if let Some(at) = left.iter().position(is_wide) {
                self.qkv = Some(left.remove(at));
            }
        }
        if left.is_empty() {
            let named = |entry: &&Entry| is_named(Role::O, &entry.words);
            let mut found = neutral.iter().enumerate().filter(|(_, entry)| named(entry));
            if let (Some((at, _)), None) = (found.next(), found.next())
                && neutral.len() != 2
            {
                left.push(neutral.remove(at));
            }
        }
        match left.as_slice() {
            [] => {}
            [o] => self.o = Some(o),
            [o, other, ..] => return Err(twice(facts, "the output map of attention", o, other)),
        }
        for entry in [self.qkv, self.kv].into_iter().flatten() {
            self.tell(facts, entry, d_model, true)?;
        }
        let is_whole = matches!(
            (self.qkv, self.q, self.kv, self.k, self.v),
            (Some(_), None, None, None, None)
                | (None, Some(_), Some(_), None, None)
                | (None, Some(_), None, Some(_), Some(_))
        );
        match (is_whole, self.qkv.or(self.q).or(self.k).or(self.v)) {
            (true, _) => Ok(()),
            (false, Some(entry)) => {
                let problem = "expected queries, keys and values beside it".to_owned();
                Err(facts.at(&entry.first, problem))
            }
            (false, None) => Err(facts.at(
                &first.first,
                "stands in a layer without queries, keys and values".to_owned(),
            )),
        }
    }

    /// Learns from a matrix that is not square whether inputs come first.
    fn tell(
        &mut self,
        facts: &Facts<'_>,
        entry: &Entry,
        d_model: usize,
        is_outwards: bool,
    ) -> Result<()> {
        let [n_rows, n_columns] = entry.shape[..] else {
            return Ok(());
        };
        let from_model = match (n_rows == d_model, n_columns == d_model) {
            (true, true) => return Ok(()),
            (false, true) => false,
            (true, false) => true,
            (false, false) => return Err(unknown(facts, entry)),
        };
        let is_input_major = from_model == is_outwards;
        if self
            .is_input_major
            .is_some_and(|told| told != is_input_major)
        {
            let problem = "lies the other way round than the other matrices".to_owned();
            return Err(facts.at(&entry.first, problem));
        }
        self.is_input_major = Some(is_input_major);
        Ok(())
    }

    fn feed_forward(
        &mut self,
        facts: &Facts<'_>,
        mut left: Vec<&'a Entry>,
        d_model: usize,
    ) -> Result<()> {
        let Some(first) = left.first().copied() else {
            return Ok(());
        };
        if let Some(entry) = left.iter().find(|entry| {
            entry.shape.len() != 2 || !entry.shape.contains(&d_model) || entry.n_heads.is_some()
        }) {
            return Err(unknown(facts, entry));
        }
        let ambiguous = |left: &[&Entry]| {
            twice(
                facts,
                "its part of the feed-forward layer",
                left[0],
                left[1],
            )
        };
        match left.len() {
            1 => self.up = Some(first),
            2 => {
                in_order(&mut left).ok_or_else(|| ambiguous(&left))?;
                (self.up, self.down) = (Some(left[0]), Some(left[1]));
            }
            3 => {
                let down = odd_one(&left).ok_or_else(|| ambiguous(&left))?;
                let down = left.remove(down);
                self.down = Some(down);
                let is_gate = |entry: &&Entry| is_named(Role::Gate, &entry.words);
                match [is_gate(&left[0]), is_gate(&left[1])] {
                    [true, false] => {}
                    [false, true] => left.swap(0, 1),
                    // Of w1 and w3, w1 is the gate.
                    _ => {
                        match [left[0], left[1], down].map(number) {
                            [Some(1), Some(3), _] => {}
                            [Some(3), Some(1), _] => left.swap(0, 1),
                            // Most code writes fc3(act(fc1 x) · fc2 x); names do not tell.
                            [Some(1), Some(2), Some(3)] => self.gate_is_assumed = true,
                            [Some(2), Some(1), Some(3)] => {
                                left.swap(0, 1);
                                self.gate_is_assumed = true;
                            }
                            _ => return Err(ambiguous(&left)),
                        }
                    }
                }
                (self.gate, self.up) = (Some(left[0]), Some(left[1]));
            }
            _ => return Err(unknown(facts, left[3])),
        }
        let (gate, up, down) = (self.gate, self.up, self.down);
        for entry in gate.into_iter().chain(up) {
            self.tell(facts, entry, d_model, true)?;
        }
        if let Some(entry) = down {
            self.tell(facts, entry, d_model, false)?;
        }
        Ok(())
    }

    fn norms(&mut self, facts: &Facts<'_>, norms: Vec<&'a Entry>, d_model: usize) -> Result<()> {
        for norm in norms {
            let of_head = |letter: char, role: Role| {
                let short = norm.words.iter().any(|word| {
                    word.strip_prefix(letter)
                        .is_some_and(|rest| rest.ends_with("norm"))
                });
                short || is_named(role, &norm.words)
            };
            let place = match [of_head('q', Role::Q), of_head('k', Role::K)] {
                [true, false] => &mut self.q_norm,
                [false, true] => &mut self.k_norm,
                _ if norm.shape == [d_model] => {
                    self.norms.push(norm);
                    continue;
                }
                _ => return Err(unknown(facts, norm)),
            };
            if let Some(other) = place.replace(norm) {
                return Err(twice(facts, "the norm of queries or keys", other, norm));
            }
        }
        let n_branches = if self.up.is_some() { 2 } else { 1 };
        match self.norms.len() {
            0 => Ok(()),
            n if n != n_branches => {
                let problem = format!(
                    "{n} norms for {n_branches} branches of a layer are not read without a description"
                );
                Err(facts.at(&self.norms[0].first, problem))
            }
            1 => Ok(()),
            _ => {
                let before = |entry: &Entry| -> i32 {
                    let attends = is_of_attention(&entry.words);
                    let feeds = is_of_feed_forward(&entry.words) && !attends;
                    let side = i32::from(entry.has_word(&["pre", "input"]))
                        - i32::from(entry.has_word(&["post"]));
                    3 * i32::from(attends) - 3 * i32::from(feeds) + side
                };
                // Of wrapped branches, each has its norm in its own module.
                let branches = [self.qkv.or(self.q), self.up];
                let near = |entry: &Entry| nearness(entry, branches);
                let key = |entry: &Entry| (-before(entry), -near(entry), number(entry));
                if key(self.norms[0]) == key(self.norms[1]) {
                    return Err(twice(
                        facts,
                        "the first norm of a layer",
                        self.norms[0],
                        self.norms[1],
                    ));
                }
                self.norms.sort_by_key(|entry| key(entry));
                Ok(())
            }
        }
    }

    /// The bias beside a weight.
    pub fn bias_of(&self, entry: &Entry) -> Option<&'a Entry> {
        let sibling = |name: &str| -> Option<String> {
            let at = name.rfind("weight")?;
            Some(format!(
                "{}bias{}",
                &name[..at],
                &name[at + "weight".len()..]
            ))
        };
        let named = sibling(&entry.template);
        let of_name = self
            .biases
            .iter()
            .find(|bias| Some(&bias.template) == named.as_ref());
        let own = stem(&entry.words);
        let mut of_words = self.biases.iter().filter(|bias| stem(&bias.words) == own);
        of_name.or_else(|| of_words.next()).copied()
    }

    fn all(&self) -> Vec<&'a Entry> {
        let maps = [
            self.q,
            self.k,
            self.v,
            self.kv,
            self.qkv,
            self.o,
            self.gate,
            self.up,
            self.down,
            self.q_norm,
            self.k_norm,
        ];
        maps.into_iter()
            .flatten()
            .chain(self.norms.iter().copied())
            .collect()
    }

    fn check_biases(&self, facts: &Facts<'_>) -> Result<()> {
        let mut of_parts: Vec<&str> = Vec::new();
        for entry in self.all() {
            let Some(bias) = self.bias_of(entry) else {
                continue;
            };
            if of_parts.contains(&bias.template.as_str()) {
                return Err(unknown(facts, bias));
            }
            of_parts.push(&bias.template);
        }
        let left = self
            .biases
            .iter()
            .find(|bias| !of_parts.contains(&bias.template.as_str()));
        left.map_or(Ok(()), |bias| Err(unknown(facts, bias)))
    }

    /// A square matrix that is no `weight` of a module: which axis counts outputs is not told.
    pub fn bare_square(&self) -> Option<&'a Entry> {
        self.all().into_iter().find(|entry| {
            let is_square = matches!(entry.shape[..], [a, b] if a == b);
            is_square && !entry.first.ends_with(".weight") && !entry.first.ends_with("_proj_weight")
        })
    }

    /// The entries of `[tensors]` for the layer.
    ///
    /// # Errors
    /// When a tensor of several axes can be read in two ways.
    pub fn tensors(&self, facts: &Facts<'_>, d_model: usize) -> Result<Vec<(&'static str, Value)>> {
        let mut all = Vec::new();
        let maps = [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("kv", self.kv),
            ("qkv", self.qkv),
            ("o", self.o),
            ("gate", self.gate),
            ("up", self.up),
            ("down", self.down),
        ];
        for (key, entry) in maps {
            let Some(entry) = entry else { continue };
            let mut value = self.with_bias(entry);
            if let [_, a, b] = entry.shape[..] {
                let is_last_model = match (a == d_model, b == d_model) {
                    (true, false) => false,
                    (false, true) => true,
                    _ => return Err(unknown(facts, entry)),
                };
                let is_map = entry.n_heads.is_none() && ["q", "k", "v", "o"].contains(&key);
                if !is_map {
                    return Err(unknown(facts, entry));
                }
                let is_out_last = is_last_model == (key == "o");
                value["axes"] = if is_out_last {
                    "head in out"
                } else {
                    "head out in"
                }
                .into();
            } else if entry.shape.len() != 2 {
                return Err(unknown(facts, entry));
            } else if self.is_input_major == Some(true) {
                if entry.n_heads.is_some() {
                    return Err(unknown(facts, entry));
                }
                value["axes"] = "in out".into();
            }
            let order = ORDERS.iter().find(|(word, _)| entry.has_word(&[word]));
            if let (Some((_, order)), "kv" | "qkv") = (order, key) {
                value["order"] = (*order).into();
            }
            all.push((key, value));
        }
        for (key, norm) in [("q_norm", self.q_norm), ("k_norm", self.k_norm)] {
            all.extend(norm.map(|norm| (key, self.with_bias(norm))));
        }
        Ok(all)
    }

    /// A part with the bias that stands beside it.
    pub fn with_bias(&self, entry: &Entry) -> Value {
        let mut value = json!({ "weight": entry.template });
        if let Some(bias) = self.bias_of(entry) {
            value["bias"] = bias.template.clone().into();
        }
        value
    }
}
