//! Home-made code in the style of nanoGPT, minGPT and the lectures on them, of Llama, or around `nn.MultiheadAttention`: words of the
//! names, shapes and the order of the tensors give a description, as `attnscope.toml` would.

mod buffers;
mod outside;
mod parts;
mod stack;
mod untold;
mod values;

use attnscope_checkpoint::Origin;
use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use self::buffers::Buffers;
use self::outside::Outside;
use self::parts::Parts;
use self::stack::{Entry, Stack};
use self::untold::Untold;
use self::values::{HEADS, holds_sines, stated};
use super::{Facts, Layout};

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
                "{problem} (read as home-made code: no config.json is beside it, and no library has all these names)"
            ),
        },
        other => other,
    }
}

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let Some(mut stack) = Stack::of(facts)? else {
        return Ok(false);
    };
    let is_of_library = |entry: &Entry| LIBRARY.iter().any(|part| entry.template.contains(part));
    if stack.layer.iter().any(is_of_library) {
        return Ok(false);
    }
    let buffers = Buffers::take(facts, &mut stack)?;
    let Some(outside) = Outside::of(facts, &stack.outside)? else {
        return Ok(false);
    };
    let [d_vocab, d_model] = match (facts.matrix(&outside.tokens.first)?, outside.is_turned) {
        ([d_model, d_vocab], true) => [d_vocab, d_model],
        (shape, false) => shape,
    };
    let parts = Parts::of(facts, &stack.layer, d_model)?;
    let model = HomeMade {
        stack: &stack,
        buffers: &buffers,
        outside: &outside,
        parts: &parts,
        d_vocab,
        d_model,
    };
    model.describe(facts)?;
    for name in &buffers.names {
        forget(facts, name, stack.n_layers);
    }
    Ok(true)
}

/// Takes a buffer of every layer and head away, so that it does not count as left over.
fn forget(facts: &mut Facts<'_>, template: &str, n_layers: usize) {
    for layer_idx in 0..n_layers {
        let name = template.replace("{layer}", &layer_idx.to_string());
        if !name.contains(crate::reading::described::HEAD) {
            facts.tensors.forget(&name);
            continue;
        }
        for head_idx in 0.. {
            let name = name.replace(crate::reading::described::HEAD, &head_idx.to_string());
            if !facts.has(&name) {
                break;
            }
            facts.tensors.forget(&name);
        }
    }
}

struct HomeMade<'a> {
    stack: &'a Stack,
    buffers: &'a Buffers,
    outside: &'a Outside<'a>,
    parts: &'a Parts<'a>,
    d_vocab: usize,
    d_model: usize,
}

impl HomeMade<'_> {
    fn describe(&self, facts: &mut Facts<'_>) -> Result<()> {
        let mut untold = Untold::default();
        facts.by_names("model_type", "described");
        facts.by_names("n_layers", self.stack.n_layers);
        facts.by_shape(
            "d_vocab",
            self.d_vocab,
            &self.outside.tokens.first,
            &["vocab_size"],
        )?;
        self.heads(facts, &mut untold)?;
        let mut tensors: Map<String, Value> = Map::new();
        for (key, value) in self.parts.tensors(facts, self.d_model)? {
            tensors.insert(key.to_owned(), value);
        }
        self.tables(facts, &mut tensors, &mut untold);
        self.norms(facts, &mut tensors, &mut untold);
        self.positions(facts, &mut untold);
        self.mask(facts, &mut untold);
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
        facts.remarks.extend(untold.remark());
        Ok(())
    }

    /// The single layer of a lecture's early model adds nothing to a residual.
    fn is_without_residual(&self) -> bool {
        !self.stack.is_numbered && self.parts.norms.is_empty()
    }

    /// Whether the words are those of Karpathy's lecture.
    fn is_of_lecture(&self) -> bool {
        let of_lecture = |entry: &Entry| entry.n_heads.is_some() || entry.has_word(&["sa"]);
        self.stack.layer.iter().any(of_lecture)
    }

    fn d_q(&self) -> usize {
        let outputs = |entry: &Entry| match (entry.n_heads, &entry.shape[..]) {
            (Some(n), [n_rows, _]) => n * n_rows,
            (None, [n, a, b]) => n * if *a == self.d_model { b } else { a },
            (None, [n_rows, n_columns]) => match self.parts.is_input_major {
                Some(true) => *n_columns,
                _ => *n_rows,
            },
            _ => 0,
        };
        match (self.parts.q, self.parts.o) {
            (Some(q), _) => outputs(q),
            (None, Some(o)) if o.shape.len() == 2 => {
                o.shape.iter().product::<usize>() / self.d_model
            }
            _ => self.d_model,
        }
    }

    fn d_k(&self) -> usize {
        let n_rows = |entry: &Entry| {
            let n: usize = entry.shape.iter().product::<usize>() * entry.n_heads.unwrap_or(1);
            n / self.d_model
        };
        match (self.parts.k, self.parts.kv, self.parts.qkv) {
            (Some(k), ..) => n_rows(k),
            (_, Some(kv), _) => n_rows(kv) / 2,
            (.., Some(qkv)) => n_rows(qkv).saturating_sub(self.d_q()) / 2,
            _ => 0,
        }
    }

    fn heads(&self, facts: &mut Facts<'_>, untold: &mut Untold) -> Result<()> {
        let (d_q, d_k) = (self.d_q(), self.d_k());
        let query = self.parts.q.or(self.parts.qkv);
        let query = query.map_or_else(String::new, |entry| entry.first.clone());
        let mut told: Vec<(usize, Origin)> = Vec::new();
        let of = |name: &str, what: &str| Origin::Derived(format!("{what} of {name}"));
        for entry in &self.stack.layer {
            if let Some(n) = entry.n_heads {
                told.push((n, Origin::Derived("the tensors' names".to_owned())));
            } else if let ([n, _, _], true) = (&entry.shape[..], self.parts.q.is_some()) {
                told.push((*n, of(&entry.first, "shape")));
            }
        }
        if let Some(norm) = self.parts.q_norm
            && (1..d_q).contains(&norm.shape[0])
        {
            told.push((d_q / norm.shape[0], of(&norm.first, "width")));
        }
        if let Some((n, name)) = &self.buffers.slopes {
            told.push((*n, of(name, "shape")));
        }
        let is_one_head = |entry: &Entry| {
            let at = entry.words.iter().position(|word| word == "head");
            at.is_some() && entry.words.last().is_some_and(|last| last == "weight")
        };
        if !self.stack.is_numbered && self.parts.q.is_some_and(is_one_head) {
            told.push((1, Origin::Derived("the tensors' names".to_owned())));
        }
        if told.is_empty()
            && let Some((place, n)) = stated(facts, &HEADS)
        {
            told.push((n, Origin::Derived(place)));
        }
        if let (Some(rotary), true) = (&self.buffers.rotary, told.is_empty())
            && rotary.d_rotary > 0
        {
            // All dimensions of a head rotate in most models.
            let n = d_q / rotary.d_rotary;
            told.push((n, of(&rotary.name, "width")));
            untold.name("n_heads", &n.to_string());
        }
        match told.first().cloned() {
            Some((n, origin)) => {
                if let Some((other, _)) = told.iter().find(|(other, _)| *other != n) {
                    let problem = format!("{n} heads by one tensor, {other} by another");
                    return Err(facts.at(&query, problem));
                }
                facts.config.put("n_heads", n, origin);
            }
            None => facts.needed("n_heads", "n_heads", &[]),
        }
        let Some(n_heads) = facts.size("n_heads", "n_heads") else {
            return Ok(());
        };
        let d_head = d_q / n_heads;
        if d_head == 0 || !d_q.is_multiple_of(n_heads) || !d_k.is_multiple_of(d_head) {
            let problem =
                format!("{n_heads} heads do not fit {d_q} rows of queries and {d_k} of keys");
            return Err(facts.at(&query, problem));
        }
        facts.by_shape("d_head", d_head, &query, &[])?;
        facts.by_shape("n_kv_heads", d_k / d_head, &query, &[])
    }

    fn tables(&self, facts: &mut Facts<'_>, tensors: &mut Map<String, Value>, untold: &mut Untold) {
        let outside = self.outside;
        let tokens = outside.tokens.first.clone();
        let tokens = if outside.is_turned {
            json!({ "weight": tokens, "axes": "column row" })
        } else {
            tokens.into()
        };
        tensors.insert("tokens".to_owned(), tokens);
        if let (Some(positions), false) = (outside.positions, self.is_alibi_alone(facts)) {
            tensors.insert("positions".to_owned(), positions.first.clone().into());
        }
        if let Some(types) = outside.token_types {
            tensors.insert("token_types".to_owned(), types.first.clone().into());
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
        if head.shape[0] == self.d_model && head.shape[1] != self.d_model {
            value["axes"] = "in out".into();
        }
        tensors.insert("unembed".to_owned(), value);
        if self.n_out() != self.d_vocab {
            facts.needed("pooled", "pooled", &[]);
        }
    }

    /// Whether the user says that a table of positions beside ALiBi's slopes is not added.
    fn is_alibi_alone(&self, facts: &Facts<'_>) -> bool {
        self.buffers.slopes.is_some() && facts.overrides.word("positions") == Some("alibi")
    }

    fn n_out(&self) -> usize {
        self.outside.head.map_or(self.d_vocab, |head| {
            head.shape.iter().product::<usize>() / self.d_model
        })
    }

    fn norms(&self, facts: &mut Facts<'_>, tensors: &mut Map<String, Value>, untold: &mut Untold) {
        let outside = self.outside;
        let around = [
            ("embed_norm", outside.embed_norm),
            ("final_norm", outside.final_norm),
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
        let places = if self.is_norm_first(facts, untold) {
            ["attn_pre", "mlp_pre"]
        } else {
            ["attn_post", "mlp_post"]
        };
        for (norm, place) in self.parts.norms.iter().zip(places) {
            tensors.insert(place.to_owned(), self.parts.with_bias(norm));
        }
        let Some(first) = self
            .parts
            .norms
            .first()
            .copied()
            .or(outside.final_norm)
            .or(outside.embed_norm)
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

    fn positions(&self, facts: &mut Facts<'_>, untold: &mut Untold) {
        if let Some((_, name)) = &self.buffers.slopes {
            let origin = Origin::Derived(format!("shape of {name}"));
            match self.outside.positions {
                None => facts.config.put("positions", "alibi", origin),
                // Code with both may add only one of them.
                Some(_) => facts.needed("positions", "positions", &[]),
            }
            return;
        }
        if let Some(positions) = self.outside.positions {
            // Code with a table of sines often multiplies the embeddings by √d.
            if holds_sines(facts, &positions.first) {
                facts.needed("embed_scale", "embed_scale", &["embed_scale"]);
            } else {
                untold.put(facts, "embed_scale", json!(1.0), "1");
            }
            return;
        }
        if let Some(rotary) = &self.buffers.rotary {
            let origin = || Origin::Derived(format!("values of {}", rotary.name));
            facts.config.put("positions", "rotary", origin());
            facts.config.put("d_rotary", rotary.d_rotary, origin());
            match rotary.theta {
                Some(theta) => facts.config.put("rope_theta", theta, origin()),
                None => facts.needed("rope_theta", "rope_theta", &[]),
            }
            match rotary.interleaved {
                Some(is) => facts.config.put("rope_interleaved", is, origin()),
                None => untold.put(facts, "rope_interleaved", json!(false), "false"),
            }
            return;
        }
        if facts.overrides.has("positions") {
            if facts.overrides.word("positions") == Some("rotary") {
                Self::rotate(facts, untold);
            }
            return;
        }
        if self.is_without_residual() || self.parts.gate.is_none() {
            facts.needed("positions", "positions", &[]);
            return;
        }
        untold.put(facts, "positions", json!("rotary"), "rotary");
        Self::rotate(facts, untold);
    }

    fn rotate(facts: &mut Facts<'_>, untold: &mut Untold) {
        untold.put(facts, "rope_theta", json!(10_000.0), "10000");
        untold.put(facts, "rope_interleaved", json!(false), "false");
    }

    fn mask(&self, facts: &mut Facts<'_>, untold: &mut Untold) {
        if let Some((n, name)) = &self.buffers.causal {
            facts
                .config
                .put("mask", true, Origin::Derived(format!("values of {name}")));
            facts
                .config
                .put("n_ctx", *n, Origin::Derived(format!("shape of {name}")));
        } else if self.n_out() != self.d_vocab || self.is_masked_model() {
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
        if facts.overrides.has("activation") {
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
