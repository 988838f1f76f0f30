//! Home-made code in the style of nanoGPT, minGPT and the lectures on them, of Llama, or around `nn.MultiheadAttention`: words of the
//! names, shapes and the order of the tensors give a description, as `attnscope.toml` would.

mod around;
mod buffers;
mod heads;
mod order;
mod outside;
mod pair;
mod parts;
mod pictures;
mod places;
mod stack;
mod untold;
mod values;

use attnscope_checkpoint::Origin;
use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use self::buffers::Buffers;
use self::outside::{Input, Outside};
use self::pair::{Beside, Pair};
use self::parts::Parts;
use self::pictures::Pictures;
use self::stack::{Entry, Stack};
use self::untold::Untold;
use super::{Facts, Layout};
use crate::reading::described::{HEAD, name_in_layer};

pub static LAYOUT: Layout = Layout {
    known_by: "home-made code in the style of nanoGPT or Llama (blocks.0.attn.qkv.weight, blocks.0.sa.heads.0.key.weight)",
    describe,
};

/// Parts of names that Hugging Face's classes have. Their configuration holds what names do not tell: offsets of positions, windows,
/// norms in other places.
const LIBRARY: [&str; 13] = [
    "model.layers.{layer}.self_attn.",
    "model.decoder.layers.",
    "self_attn_layer_norm",
    "input_layernorm",
    "post_feedforward_layernorm",
    "attn.Wqkv",
    "attn.attention.",
    "query_layernorm",
    "gate_up_proj",
    "attention.self.",
    "query_key_value",
    "encoder.layers.{layer}.layer_norm1",
    ".lora_",
];

/// Says in a refusal why the names were read at all.
pub fn refused(refusal: Error) -> Error {
    match refusal {
        Error::Tensor {
            file,
            tensor,
            problem,
        } => Error::Tensor {
            file,
            tensor,
            problem: format!(
                "{problem} (read as home-made code: no config.json names its kind, and no library has all these names)"
            ),
        },
        other => other,
    }
}

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let (mut stack, mut pair) = match Stack::of(facts)? {
        Some(stack) => (stack, None),
        None => match Pair::of(facts)? {
            Some((decoder, pair)) => (decoder, Some(pair)),
            None => return Ok(false),
        },
    };
    let is_of_library = |entry: &Entry| LIBRARY.iter().any(|part| entry.template.contains(part));
    if stack.layer.iter().any(is_of_library) {
        return Ok(false);
    }
    let buffers = Buffers::take(facts, &mut stack)?;
    let beside = match &mut pair {
        Some(pair) => Buffers::take(facts, &mut pair.encoder)?,
        None => Buffers::default(),
    };
    let pictures = match pair {
        None => Pictures::take(facts, &mut stack)?,
        Some(_) => None,
    };
    let pictures = pictures.as_ref();
    let Some(model) = HomeMade::of(facts, &stack, &buffers, pictures)? else {
        return Ok(false);
    };
    let encoder = match &pair {
        Some(pair) => match Beside::of(facts, pair, &beside, model.d_model)? {
            Some(encoder) => Some(encoder),
            None => return Ok(false),
        },
        None => None,
    };
    model.describe(facts, encoder.as_ref())?;
    for name in &buffers.names {
        forget(facts, name, stack.n_layers);
    }
    if let Some(pair) = &pair {
        for name in &beside.names {
            forget(facts, name, pair.encoder.n_layers);
        }
    }
    Ok(true)
}

/// Takes a buffer of every layer and head away, so that it does not count as left over.
fn forget(facts: &mut Facts<'_>, template: &str, n_layers: usize) {
    for layer_idx in 0..n_layers {
        let name = name_in_layer(template, layer_idx);
        if !name.contains(HEAD) {
            facts.tensors.forget(&name);
            continue;
        }
        for head_idx in 0.. {
            let name = name.replace(HEAD, &head_idx.to_string());
            if !facts.has(&name) {
                break;
            }
            facts.tensors.forget(&name);
        }
    }
}

/// One stack, and what stands around it.
struct HomeMade<'a> {
    stack: &'a Stack,
    buffers: &'a Buffers,
    outside: Outside<'a>,
    parts: Parts<'a>,
    pictures: Option<&'a Pictures>,
    d_vocab: usize,
    d_model: usize,
}

impl<'a> HomeMade<'a> {
    /// `None` if no table is that of tokens.
    ///
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    fn of(
        facts: &Facts<'_>,
        stack: &'a Stack,
        buffers: &'a Buffers,
        pictures: Option<&'a Pictures>,
    ) -> Result<Option<Self>> {
        let outside = match pictures {
            Some(pictures) => Some(Outside::of_pictures(facts, stack, pictures)?),
            None => Outside::of(facts, &stack.outside, stack.width())?,
        };
        let Some(outside) = outside else {
            return Ok(None);
        };
        let table = &outside.tokens.first;
        let [d_vocab, d_model] = match outside.input {
            Input::Rows => facts.matrix(table)?,
            Input::Columns => {
                let [n_rows, n_columns] = facts.matrix(table)?;
                [n_columns, n_rows]
            }
            Input::Values | Input::Patches => [0, outside.tokens.shape[0]],
        };
        Ok(Some(Self {
            stack,
            buffers,
            parts: Parts::of(facts, &stack.layer, d_model)?,
            outside,
            pictures,
            d_vocab,
            d_model,
        }))
    }

    fn describe(&self, facts: &mut Facts<'_>, beside: Option<&Beside<'_>>) -> Result<()> {
        let mut untold = Untold::default();
        facts.by_names("model_type", "described");
        facts.by_names("n_layers", self.stack.n_layers);
        if self.reads_tokens() {
            let table = &self.outside.tokens.first;
            facts.by_shape("d_vocab", self.d_vocab, table, &["vocab_size"])?;
        }
        self.heads(facts, &mut untold)?;
        let is_norm_first = self.is_norm_first(facts, &mut untold);
        let mut tensors = self.tensors(facts, is_norm_first)?;
        self.head(facts, &mut tensors, &mut untold);
        self.kind_of_norm(facts, &mut untold);
        if let Some(beside) = beside {
            beside.describe(facts, &mut tensors, is_norm_first)?;
        } else if let Some(pictures) = self.pictures {
            let outside = (self.outside.positions, self.outside.head.is_some());
            pictures.settings(facts, &mut untold, outside);
        } else if !self.writes_tokens() && self.outside.head.is_some() {
            facts.needed("pooled", "pooled", &[]);
        }
        self.positions(facts, &mut untold)?;
        self.mask(facts, &mut untold, beside.is_some());
        self.activation(facts, &mut untold);
        if self.is_without_residual() {
            untold.put(facts, "residual", json!("none"), "none");
        }
        if let Some(square) = self.parts.bare_square() {
            let axes = if self.parts.is_input_major == Some(true) {
                "[in, out]"
            } else {
                "[out, in]"
            };
            facts.remarks.push(format!(
                "square matrices such as {} are taken as {axes}, which no shape tells; [tensors] in attnscope.toml says otherwise with axes",
                square.template
            ));
        }
        facts.by_names("tensors", tensors);
        if !facts.overrides.has("scale") && facts.size("n_heads", "n_heads").is_some_and(|n| n > 1)
        {
            let of_model = (self.d_model as f64).powf(-0.5);
            untold.scale(of_model);
        } else if !facts.overrides.has("scale") {
            untold.name("scale", "inv_sqrt_d");
        }
        facts.remarks.extend(untold.remark(self.pictures.is_some()));
        self.suggest_pictures(facts);
        self.leave_unused(facts);
        Ok(())
    }

    fn reads_tokens(&self) -> bool {
        matches!(self.outside.input, Input::Rows | Input::Columns)
    }

    /// The single layer of a lecture's early model adds nothing to a residual.
    fn is_without_residual(&self) -> bool {
        !self.stack.is_numbered && self.parts.norms.is_empty()
    }

    /// Whether the words are those of Karpathy's lecture.
    fn is_of_lecture(&self) -> bool {
        let is_list = |entry: &Entry| entry.template.contains(&format!("heads.{HEAD}"));
        let of_lecture = |entry: &Entry| is_list(entry) || entry.has_word(&["sa"]);
        self.stack.layer.iter().any(of_lecture)
    }

    /// The entries of `[tensors]` for the tables, the layers and the norms around them.
    ///
    /// # Errors
    /// When a tensor of several axes can be read in two ways.
    fn tensors(&self, facts: &Facts<'_>, is_norm_first: bool) -> Result<Map<String, Value>> {
        let outside = &self.outside;
        let mut tensors = Map::new();
        for (key, value) in self.parts.tensors(facts, self.d_model)? {
            tensors.insert(key.to_owned(), value);
        }
        let first = outside.tokens.first.clone();
        if let Some(pictures) = self.pictures {
            pictures.tensors(&mut tensors);
        }
        let (key, first) = match (outside.input, outside.bias_of(outside.tokens)) {
            (Input::Patches, _) => ("", Value::Null),
            (Input::Rows, _) => ("tokens", first.into()),
            (Input::Columns, _) => ("tokens", json!({ "weight": first, "axes": "column row" })),
            (Input::Values, None) => ("values", json!({ "weight": first })),
            (Input::Values, Some(bias)) => {
                ("values", json!({ "weight": first, "bias": bias.first }))
            }
        };
        if outside.input != Input::Patches {
            tensors.insert(key.to_owned(), first);
        }
        if let (Some(positions), false) = (outside.positions, self.is_alibi_alone(facts)) {
            tensors.insert("positions".to_owned(), positions.first.clone().into());
        }
        if let Some(types) = outside.token_types {
            tensors.insert("token_types".to_owned(), types.first.clone().into());
        }
        let around = [
            ("embed_norm", outside.embed_norm),
            ("final_norm", outside.final_norm),
            ("pooled_norm", outside.pooled_norm),
            ("head_norm", outside.head_norm),
            ("head_dense", outside.dense),
        ];
        for (key, norm) in around {
            if let Some(norm) = norm {
                let mut value = json!({ "weight": norm.first });
                if let Some(bias) = outside.bias_of(norm) {
                    value["bias"] = bias.first.clone().into();
                }
                tensors.insert(key.to_owned(), value);
            }
        }
        let places = if is_norm_first {
            ["attn_pre", "mlp_pre"]
        } else {
            ["attn_post", "mlp_post"]
        };
        for (norm, place) in self.parts.norms.iter().zip(places) {
            tensors.insert(place.to_owned(), self.parts.with_bias(norm));
        }
        Ok(tensors)
    }

    fn head(&self, facts: &mut Facts<'_>, tensors: &mut Map<String, Value>, untold: &mut Untold) {
        let outside = &self.outside;
        if let Some(module) = &outside.aside {
            facts.by_names("head", "none");
            facts.remarks.push(format!(
                "the head {module}, which has several layers, is not read: outputs are the last hidden states"
            ));
            return;
        }
        if outside.dense.is_some() {
            facts.needed("head_activation", "head_activation", &["head_activation"]);
        }
        if outside.head.is_none() && !self.reads_tokens() {
            facts.by_names("head", "none");
            return;
        }
        let Some(head) = outside.head else {
            // A model without an unembedding may also end with its last states.
            let is_shared = facts.tensors.iter().any(|(name, _)| {
                name != outside.tokens.first
                    && facts.tensors.share_bytes(name, &outside.tokens.first)
            });
            if !is_shared {
                untold.put(
                    facts,
                    "head",
                    json!("any"),
                    "any (tied to the table of tokens; none if the model has no unembedding)",
                );
            }
            return;
        };
        let mut value = json!({ "weight": head.first });
        if let Some(bias) = outside.bias_of(head) {
            value["bias"] = bias.first.clone().into();
        }
        let is_turned = head.shape[0] == self.d_model && head.shape[1] != self.d_model;
        if is_turned && outside.dense.is_none() {
            value["axes"] = "in out".into();
        }
        tensors.insert("unembed".to_owned(), value);
    }

    /// Whether the user says that a table of positions beside ALiBi's slopes is not added.
    fn is_alibi_alone(&self, facts: &Facts<'_>) -> bool {
        self.buffers.slopes.is_some() && facts.overrides.word("positions") == Some("alibi")
    }

    /// Whether the outputs are logits of the tokens that are read.
    fn writes_tokens(&self) -> bool {
        self.outside.aside.is_none() && self.reads_tokens() && self.n_out() == self.d_vocab
    }

    fn n_out(&self) -> usize {
        self.outside.head.map_or(self.d_vocab, |head| {
            head.shape.iter().product::<usize>() / self.d_model
        })
    }

    fn kind_of_norm(&self, facts: &mut Facts<'_>, untold: &mut Untold) {
        let outside = &self.outside;
        let Some(first) = self
            .parts
            .norms
            .first()
            .copied()
            .or(outside.final_norm)
            .or(outside.embed_norm)
            .or(outside.pooled_norm)
        else {
            return;
        };
        let has_bias = self.parts.bias_of(first).is_some() || outside.bias_of(first).is_some();
        let is_rms = if has_bias {
            facts.by_names("norm", "layer");
            false
        } else if first.words.iter().any(|word| word.contains("rms")) {
            facts.by_names("norm", "rms");
            true
        } else {
            let is_rms = self.parts.gate.is_some() || outside.positions.is_none();
            let word = if is_rms { "rms" } else { "layer" };
            untold.put(facts, "norm", json!(word), word);
            is_rms
        };
        if facts.by_statement("norm_eps", &["norm_eps", "layer_norm_eps"]) {
            return;
        }
        if is_rms {
            untold.put(facts, "norm_eps", json!(1e-5), "1e-5");
        } else {
            facts.by_names("norm_eps", 1e-5);
        }
    }

    /// Whether the norms stand before their branches.
    fn is_norm_first(&self, facts: &mut Facts<'_>, untold: &mut Untold) -> bool {
        let Some(norm) = self.parts.norms.first() else {
            return true;
        };
        if let Some(is_first) = facts.overrides.flag("norm_first") {
            facts.by_names("norm_first", is_first);
            return is_first;
        }
        let stated = facts.stated_anywhere(&["norm_first"], Value::is_boolean);
        if let Some((_, Value::Bool(is_first))) = stated {
            facts.needed("norm_first", "norm_first", &["norm_first"]);
            return is_first;
        }
        if norm.has_word(&["pre", "prenorm"]) {
            facts.by_names("norm_first", true);
            return true;
        }
        let at = |entry: Option<&Entry>| facts.tensors.saved_at(&entry?.first);
        let of_attention = at(self.parts.qkv.or(self.parts.q));
        let is_before = matches!((at(Some(norm)), of_attention), (Some(norm), Some(q)) if norm < q);
        let is_of_gpt = norm.has_word(&["ln"])
            && self
                .parts
                .qkv
                .is_some_and(|qkv| qkv.has_word(&["attn"]) && qkv.has_word(&["c"]));
        let is_of_llama = self.parts.gate.is_some();
        let is_by_lecture = self.is_of_lecture() && self.outside.final_norm.is_some();
        if is_before || is_of_gpt || is_of_llama || is_by_lecture {
            untold.put(facts, "norm_first", json!(true), "true");
            return true;
        }
        facts.needed("norm_first", "norm_first", &["norm_first"]);
        true
    }

    fn mask(&self, facts: &mut Facts<'_>, untold: &mut Untold, is_decoder: bool) {
        if let Some((n, name)) = &self.buffers.causal {
            facts
                .config
                .put("mask", true, Origin::Derived(format!("values of {name}")));
            facts
                .config
                .put("n_ctx", *n, Origin::Derived(format!("shape of {name}")));
        } else if self.pictures.is_some() {
            facts.by_names("mask", false);
        } else if !is_decoder && (!self.writes_tokens() || self.is_masked_model()) {
            facts.needed("mask", "mask", &[]);
        } else if !facts.overrides.has("mask") {
            untold.put(
                facts,
                "mask",
                json!(true),
                "causal (no mask is stored, which does not mean that there is none)",
            );
        }
    }

    /// Whether words are those of an encoder such as BERT.
    fn is_masked_model(&self) -> bool {
        let masked = ["mlm", "cls", "bert"];
        let mut around = self.stack.outside.iter();
        self.outside.token_types.is_some() || around.any(|entry| entry.has_word(&masked))
    }

    fn activation(&self, facts: &mut Facts<'_>, untold: &mut Untold) {
        let Some(up) = self.parts.up else { return };
        if let Some(gate) = self.parts.gate.filter(|_| self.parts.gate_is_assumed) {
            untold.name(
                "gate",
                &format!("{} ([tensors] says otherwise)", gate.first),
            );
        }
        let is_stated = || {
            facts
                .stated_anywhere(&["activation"], Value::is_string)
                .is_some()
        };
        if facts.overrides.has("activation") || is_stated() {
            facts.needed("activation", "activation", &["activation"]);
            return;
        }
        if self.parts.gate.is_some() {
            untold.put(facts, "activation", json!("silu"), "silu");
        } else if self.is_of_lecture() {
            untold.put(facts, "activation", json!("relu"), "relu");
        } else if up.words.windows(2).any(|pair| pair == ["c", "fc"]) {
            untold.put(facts, "activation", json!("gelu"), "gelu");
        } else {
            facts.needed("activation", "activation", &["activation"]);
        }
    }
}
