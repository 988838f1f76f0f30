//! Llama's names: Hugging Face's, or Meta's own, whose queries and keys rotate in interleaved pairs.

use attnscope_compute::error::Result;

use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "Llama (model.layers.0.self_attn.q_proj.weight)",
    describe,
};

pub const META: Layout = Layout {
    known_by: "Meta's Llama (layers.0.attention.wq.weight)",
    describe: describe_meta,
};

pub const TORCHTUNE: Layout = Layout {
    known_by: "torchtune (layers.0.attn.output_proj.weight)",
    describe: describe_torchtune,
};

/// The key that tells the family that rotating pairs are interleaved.
pub const INTERLEAVED: &str = "rope_as_meta_stores_it";

const PARTS: &[&str] = &[
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.weight",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.weight",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.weight",
    "self_attn.o_proj.bias",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.rotary_emb.inv_freq",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.gate_proj.bias",
    "mlp.up_proj.weight",
    "mlp.up_proj.bias",
    "mlp.down_proj.weight",
    "mlp.down_proj.bias",
];

/// Meta's names for the parts of a layer, and Hugging Face's.
const RENAMED: &[(&str, &str)] = &[
    ("attention.wq", "self_attn.q_proj"),
    ("attention.wk", "self_attn.k_proj"),
    ("attention.wv", "self_attn.v_proj"),
    ("attention.wo", "self_attn.o_proj"),
    ("feed_forward.w1", "mlp.gate_proj"),
    ("feed_forward.w2", "mlp.down_proj"),
    ("feed_forward.w3", "mlp.up_proj"),
    ("attention_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
];

/// torchtune's names for the parts of a layer, and Hugging Face's.
const OF_TORCHTUNE: &[(&str, &str)] = &[
    ("attn.q_proj", "self_attn.q_proj"),
    ("attn.k_proj", "self_attn.k_proj"),
    ("attn.v_proj", "self_attn.v_proj"),
    ("attn.output_proj", "self_attn.o_proj"),
    ("attn.q_norm", "self_attn.q_norm"),
    ("attn.k_norm", "self_attn.k_norm"),
    ("mlp.w1", "mlp.gate_proj"),
    ("mlp.w2", "mlp.down_proj"),
    ("mlp.w3", "mlp.up_proj"),
    ("sa_norm", "input_layernorm"),
    ("mlp_norm", "post_attention_layernorm"),
];

fn describe_torchtune(facts: &mut Facts<'_>) -> Result<bool> {
    if !facts.has("layers.0.attn.output_proj.weight") || !facts.has("tok_embeddings.weight") {
        return Ok(false);
    }
    // torchtune's Qwen models have biases and rotate by halves as Hugging Face does; its Llama models rotate in interleaved
    // pairs.
    let is_qwen = facts.has("layers.0.attn.q_proj.bias") || facts.has("layers.0.attn.q_norm.scale");
    facts.tensors.rename(|name| {
        let name = name
            .strip_suffix(".scale")
            .map_or(name.to_owned(), |base| format!("{base}.weight"));
        renamed(&name, OF_TORCHTUNE)
    })?;
    if !is_qwen {
        facts.by_names(INTERLEAVED, true);
    }
    describe(facts)
}

fn describe_meta(facts: &mut Facts<'_>) -> Result<bool> {
    if !facts.has("layers.0.attention.wq.weight") || !facts.has("tok_embeddings.weight") {
        return Ok(false);
    }
    if facts
        .stated(&["use_scaled_rope"])
        .is_some_and(|(_, value)| value.as_bool() != Some(false))
    {
        let problem = "params.json scales rotary positions by constants of Meta's code, which are not known here; \
                       expected the Hugging Face version of this checkpoint";
        return Err(facts.at("tok_embeddings.weight", problem.to_owned()));
    }
    facts.tensors.rename(|name| renamed(name, RENAMED))?;
    facts.by_names(INTERLEAVED, true);
    describe(facts)
}

/// Hugging Face's name for a tensor of Meta's, with the layer parts paired up in `parts`; `None` if the name stays.
fn renamed(name: &str, parts: &[(&str, &str)]) -> Option<String> {
    let whole = match name {
        "tok_embeddings.weight" => Some("model.embed_tokens.weight"),
        "norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    whole.map(str::to_owned).or_else(|| {
        let (layer, part) = name.strip_prefix("layers.")?.split_once('.')?;
        let renamed = parts.iter().find_map(|(theirs, ours)| {
            let tail = part.strip_prefix(theirs)?;
            let tail = tail.starts_with('.').then_some(tail)?;
            Some(format!("{ours}{tail}"))
        });
        let part = renamed.unwrap_or_else(|| part.to_owned());
        Some(format!("model.layers.{layer}.{part}"))
    })
}

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let probe = |base: &str| format!("{base}layers.0.self_attn.q_proj.weight");
    let Some(base) = ["model.", ""]
        .into_iter()
        .find(|base| facts.has(&probe(base)))
    else {
        return Ok(false);
    };
    let tokens = format!("{base}embed_tokens.weight");
    let layer = |part: &str| format!("{base}layers.0.{part}");
    let [d_vocab, d_model] = facts.matrix(&tokens)?;
    let [q_rows, _] = facts.matrix(&probe(base))?;
    let [k_rows, _] = facts.matrix(&layer("self_attn.k_proj.weight"))?;
    let [d_mlp, _] = facts.matrix(&layer("mlp.gate_proj.weight"))?;
    let before = format!("{base}layers.");
    facts.layers(
        "num_hidden_layers",
        &before,
        "self_attn.q_proj.weight",
        PARTS,
    )?;
    facts.by_shape("hidden_size", d_model, &tokens, &["dim", "hidden_size"])?;
    // Meta writes -1 where the tokenizer decides the size: treated as absent.
    facts.by_shape("vocab_size", d_vocab, &tokens, &["vocab_size"])?;
    facts.by_shape(
        "intermediate_size",
        d_mlp,
        &layer("mlp.gate_proj.weight"),
        &[],
    )?;
    facts.by_names("tie_word_embeddings", !facts.has("lm_head.weight"));
    heads(facts, q_rows, k_rows, &layer)?;
    facts.needed("rope_theta", "rope_theta", &["rope_theta"]);
    facts.needed("norm_eps", "rms_norm_eps", &["norm_eps", "rms_norm_eps"]);
    facts.by_statement("max_position_embeddings", &["max_seq_len", "block_size"]);

    let has = |facts: &Facts<'_>, part: &str| facts.has(&layer(part));
    let q_bias = has(facts, "self_attn.q_proj.bias");
    let o_bias = has(facts, "self_attn.o_proj.bias");
    let family = if has(facts, "self_attn.q_norm.weight") {
        "qwen3"
    } else if q_bias && !o_bias {
        "qwen2"
    } else {
        "llama"
    };
    facts.by_names("model_type", family);
    facts.by_names("attention_bias", q_bias);
    facts.by_names("mlp_bias", has(facts, "mlp.gate_proj.bias"));
    Ok(true)
}

/// Works out the heads from the rows of the projections; either the number of heads or their width must be known.
fn heads(
    facts: &mut Facts<'_>,
    q_rows: usize,
    k_rows: usize,
    layer: &dyn Fn(&str) -> String,
) -> Result<()> {
    let (q, k) = (
        layer("self_attn.q_proj.weight"),
        layer("self_attn.k_proj.weight"),
    );
    let norm = layer("self_attn.q_norm.weight");
    let d_head = facts.overrides.size("d_head").or(match facts.shape(&norm) {
        Some(&[width]) if width > 0 => Some(width),
        _ => None,
    });
    let divides = |d_head: usize| q_rows.is_multiple_of(d_head) && k_rows.is_multiple_of(d_head);
    match d_head {
        Some(d_head) if divides(d_head) && !facts.overrides.has("n_heads") => {
            facts.by_shape("num_attention_heads", q_rows / d_head, &q, &[])?;
        }
        _ => facts.needed("n_heads", "num_attention_heads", &["n_heads", "n_head"]),
    }
    let Some(n_heads) = facts.size("n_heads", "num_attention_heads") else {
        return Ok(());
    };
    let d_head = q_rows / n_heads;
    if !q_rows.is_multiple_of(n_heads) || !k_rows.is_multiple_of(d_head) {
        let problem =
            format!("{n_heads} heads do not fit the {q_rows} rows of queries and {k_rows} of keys");
        return Err(facts.at(&q, problem));
    }
    facts.by_shape("head_dim", d_head, &q, &[])?;
    facts.by_shape("num_key_value_heads", k_rows / d_head, &k, &["n_kv_heads"])
}
