//! Converts the metadata of a GGUF file to the configuration that Hugging Face would write for the same model.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::architectures::Architecture;
use super::facts::{Facts, Sizes};
use super::kinds::Kind;
use super::metadata::Metadata;
use super::names::Meaning;
use super::rope;
use super::value::Value as Stored;
use super::windows::slides;
use crate::tensors::Tensors;

/// Larger values mean damage; `config` has the same limits for its keys.
const MOST_LAYERS: u64 = 4096;
const LARGEST: u64 = 1 << 26;

/// Keys that change what a model computes, which none of these architectures is known to use, and the value at which they
/// have no effect.
const UNKNOWN_HERE: &[(&str, f64)] = &[
    ("attention.clamp_kqv", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.scale", 0.0),
    ("attention.temperature_scale", 0.0),
    ("embedding_scale", 1.0),
    ("expert_shared_count", 0.0),
    ("leading_dense_block_count", 0.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
];

/// Keys of the epsilon of norms.
const EPS: [&str; 2] = [
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
];

/// Names of token embeddings.
const TABLES: [&str; 7] = [
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
    "embeddings.word_embeddings.weight",
    "embeddings.tok_embeddings.weight",
    "gpt_neox.embed_in.weight",
    "shared.weight",
];

/// Key of the number of key/value heads.
const KV_HEADS: &str = "attention.head_count_kv";

/// Key of the width of a sliding window.
pub(super) const WINDOW: &str = "attention.sliding_window";

/// Reads the sizes.
///
/// # Errors
/// When one is missing or invalid.
pub(super) fn sizes(metadata: &Metadata<'_>, architecture: &str) -> Result<Sizes> {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let n_all = metadata.size(&key("block_count"), MOST_LAYERS)?;
    // Layers for multi-token prediction follow the others.
    const BEHIND: &str = "nextn_predict_layers";
    let n_behind = metadata.whole(&key(BEHIND))?.unwrap_or(0);
    let Some(n_layers) = n_all.checked_sub(n_behind).filter(|n| *n > 0) else {
        let problem = format!("expected less than {n_all} layers, found {n_behind}");
        return Err(Error::config(metadata.path, key(BEHIND), problem));
    };
    let d_model = metadata.size(&key("embedding_length"), LARGEST)?;
    let n_heads = metadata.size(&key("attention.head_count"), LARGEST)?;
    let n_kv_heads = match metadata.get(&key("attention.head_count_kv")) {
        // In hybrid models, layers without attention have no key/value heads, so the key is a list.
        Some(_) if Kind::of(architecture).is_some_and(|kind| kind.reads(KV_HEADS)) => {
            metadata.largest(&key("attention.head_count_kv"), LARGEST)?
        }
        Some(_) => metadata.size(&key("attention.head_count_kv"), LARGEST)?,
        None => n_heads,
    };
    let d_head = match metadata.get(&key("attention.key_length")) {
        // DeepSeek's heads have a part that rotates and one that does not; this is the width of the first.
        _ if architecture == "deepseek2" => metadata.size(&key("rope.dimension_count"), LARGEST)?,
        Some(_) => metadata.size(&key("attention.key_length"), LARGEST)?,
        None => (d_model / n_heads).max(1),
    };
    let d_value = metadata
        .whole(&key("attention.value_length"))?
        .filter(|_| architecture != "deepseek2")
        .unwrap_or(d_head);
    if d_value != d_head {
        let problem = format!("expected {d_head} as for the keys, found {d_value}");
        return Err(Error::config(
            metadata.path,
            key("attention.value_length"),
            problem,
        ));
    }
    Ok(Sizes {
        n_layers,
        d_model,
        n_heads,
        n_kv_heads,
        d_head,
    })
}

/// Reads the feed-forward width from the tensors of layer 0: some converters state 4 × hidden size for every model.
fn d_mlp(architecture: &Architecture, tensors: &Tensors) -> Option<u64> {
    let stored = ["blk.0.ffn_down.weight", "enc.blk.0.ffn_down.weight"];
    stored.iter().find_map(|stored| {
        let Meaning::Whole { name, .. } = architecture.meaning(stored) else {
            return None;
        };
        match tensors.info(&name)?.shape[..] {
            [n_in, _] if architecture.is_transposed => Some(n_in as u64),
            [_, n_in] => Some(n_in as u64),
            _ => None,
        }
    })
}

/// Builds the configuration in Hugging Face's terms; metadata keys that have no equivalent keep their names, so that they
/// are reported as unread.
///
/// # Errors
/// When a value is missing, has the wrong type, or has an unknown meaning.
pub(super) fn hugging_face(
    metadata: &Metadata<'_>,
    architecture: &Architecture,
    prefix: &str,
    sizes: Sizes,
    tensors: &Tensors,
) -> Result<Map<String, Value>> {
    let key = |tail: &str| format!("{prefix}.{tail}");
    let d_mlp_stored = d_mlp(architecture, tensors);
    let architecture = architecture.name;
    let kind = Kind::of(architecture);
    for (tail, neutral) in UNKNOWN_HERE {
        // Gemma's scale is read below, that of other models by their kinds.
        let is_read = kind.is_some_and(|kind| kind.reads(tail));
        if is_read || *tail == "attention.scale" && architecture.starts_with("gemma") {
            continue;
        }
        if let Some(found) = metadata
            .number(&key(tail))?
            .filter(|found| found != neutral)
        {
            let problem = format!(
                "not known for {architecture}: expected {neutral} or nothing, found {found}"
            );
            return Err(Error::config(metadata.path, key(tail), problem));
        }
    }
    let sees_both = architecture == "gemma-embedding" || kind.is_some_and(|kind| kind.sees_both);
    if metadata.flag(&key("attention.causal"))? == Some(false) && !sees_both {
        let problem = "expected true or nothing, found false";
        return Err(Error::config(
            metadata.path,
            key("attention.causal"),
            problem,
        ));
    }
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| {
        config.insert(name.to_owned(), value);
    };
    let has = |name: &str| tensors.contains(name);
    let is_tied = !has("lm_head.weight") && !has("embed_out.weight");
    set("tie_word_embeddings", json!(is_tied));
    let n_ctx = metadata.whole(&key("context_length"))?;
    const WIDTH: &str = "feed_forward_length";
    let stated = match metadata.get(&key(WIDTH)) {
        // A list has 0 for layers without a feed-forward block.
        Some(Stored::List(_)) if kind.is_some_and(|kind| kind.reads(WIDTH)) => {
            metadata.wholes(&key(WIDTH))?.into_iter().max()
        }
        _ => metadata.whole(&key(WIDTH))?,
    };
    let d_mlp = d_mlp_stored.or(stated);
    // The embedding's shape decides: metadata often lack the key, and a padded embedding has more rows.
    let rows = |name: &str| tensors.info(name).map(|info| info.shape[0] as u64);
    let d_vocab = TABLES.iter().find_map(|name| rows(name));
    let d_vocab = d_vocab.or(metadata.whole(&key("vocab_size"))?);
    set("vocab_size", json!(d_vocab));
    metadata.whole(&key("vocab_size"))?;

    if architecture == "gpt2" {
        set("model_type", json!("gpt2"));
        set("n_layer", json!(sizes.n_layers));
        set("n_embd", json!(sizes.d_model));
        set("n_head", json!(sizes.n_heads));
        set("n_inner", json!(d_mlp));
        set("n_positions", json!(n_ctx));
        set("activation_function", json!("gelu_new"));
        if let Some(eps) = metadata.number(&key("attention.layer_norm_epsilon"))? {
            set("layer_norm_epsilon", json!(eps));
        }
        add_unread(&mut config, metadata, prefix);
        return Ok(config);
    }

    set("hidden_size", json!(sizes.d_model));
    set("num_hidden_layers", json!(sizes.n_layers));
    set("num_attention_heads", json!(sizes.n_heads));
    set("num_key_value_heads", json!(sizes.n_kv_heads));
    set("intermediate_size", json!(d_mlp));
    if let Some(n_ctx) = n_ctx {
        set("max_position_embeddings", json!(n_ctx));
    }
    // Phi-3 and StarCoder 2 have no key for the head width: it is always hidden size / heads.
    let divides = sizes.d_head * sizes.n_heads == sizes.d_model;
    let is_derived = ["phi3", "starcoder2"].contains(&architecture);
    if !(divides && (is_derived || kind.is_some_and(|kind| kind.divides))) {
        set("head_dim", json!(sizes.d_head));
    }
    let eps = match (architecture, kind) {
        (_, Some(kind)) => kind.eps,
        ("starcoder2", None) => ("attention.layer_norm_epsilon", "norm_epsilon"),
        _ => ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    };
    let of_norms = [eps.0, EPS[0], EPS[1]].map(|tail| metadata.number(&key(tail)));
    let [own, layer, rms] = of_norms;
    if let Some(number) = own?.or(layer?).or(rms?).filter(|_| !eps.1.is_empty()) {
        set(eps.1, json!(number));
    }
    let theta = metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    set("rope_theta", json!(theta));
    if let Some(scaling) = rope::scaling(metadata, prefix, tensors, theta, sizes.d_head)? {
        set("rope_scaling", scaling);
    }
    let d_rotary = metadata
        .whole(&key("rope.dimension_count"))?
        .unwrap_or(sizes.d_head);
    let rotates_in_part = architecture == "phi3" || kind.is_some_and(|kind| kind.rotates_in_part);
    if d_rotary != sizes.d_head && !rotates_in_part {
        let problem = format!(
            "expected {} as the heads are wide, found {d_rotary}",
            sizes.d_head
        );
        return Err(Error::config(
            metadata.path,
            key("rope.dimension_count"),
            problem,
        ));
    }
    // Without the key, the whole head rotates, whatever the family's default is.
    let is_part = d_rotary != sizes.d_head || kind.is_some_and(|kind| kind.rotates_in_part);
    if is_part {
        set(
            "partial_rotary_factor",
            json!(d_rotary as f64 / sizes.d_head as f64),
        );
    }
    // 0 means no window.
    let window = metadata
        .whole(&key("attention.sliding_window"))?
        .filter(|w| *w > 0);
    let model_type = match architecture {
        "llama" if metadata.whole(&key("expert_count"))?.is_some_and(|n| n > 0) => "mixtral",
        "llama" if window.is_some() => "mistral",
        "gemma3" | "gemma-embedding" => "gemma3_text",
        "olmo2" if window.is_some() => "olmo3",
        other => kind.map_or(other, |kind| kind.model_type),
    };
    set("model_type", json!(model_type));
    match architecture {
        "gemma" | "gemma2" | "gemma3" | "gemma-embedding" => {
            // Gemma 1 was published with both spellings; the activation is the same.
            let name = if architecture == "gemma" {
                "hidden_act"
            } else {
                "hidden_activation"
            };
            set(name, json!("gelu_pytorch_tanh"));
        }
        "starcoder2" => set("hidden_act", json!("gelu_pytorch_tanh")),
        _ => set("hidden_act", json!("silu")),
    }
    if architecture == "gemma-embedding" {
        set("use_bidirectional_attention", json!(true));
    }
    // Read and ignored: for text, the position sections of images make no difference.
    for tail in ["rope.dimension_sections", "n_deepstack_layers"] {
        metadata.get(&key(tail));
    }
    if let Some(kind) = kind {
        let facts = Facts {
            metadata,
            prefix,
            sizes,
            tensors,
        };
        kind.fill(&facts, &mut config)?;
        let set = |name: &str, value: Value| {
            config.insert(name.to_owned(), value);
        };
        windows_of(kind, &facts, window, set)?;
        if kind.requires_rope_parameters && !config.contains_key("rope_scaling") {
            config.insert("rope_scaling".to_owned(), json!({"rope_type": "default"}));
        }
        kind.rename(&mut config);
        add_unread(&mut config, metadata, prefix);
        return Ok(config);
    }
    let mut set = |name: &str, value: Value| {
        config.insert(name.to_owned(), value);
    };
    match model_type {
        "llama" => {
            set(
                "attention_bias",
                json!(has("model.layers.0.self_attn.q_proj.bias")),
            );
            set("mlp_bias", json!(has("model.layers.0.mlp.up_proj.bias")));
        }
        "mixtral" => {
            set(
                "num_local_experts",
                json!(metadata.whole(&key("expert_count"))?),
            );
            set(
                "num_experts_per_tok",
                json!(metadata.whole(&key("expert_used_count"))?),
            );
        }
        "qwen3" => set(
            "attention_bias",
            json!(has("model.layers.0.self_attn.q_proj.bias")),
        ),
        "starcoder2" => set(
            "use_bias",
            json!(has("model.layers.0.self_attn.q_proj.bias")),
        ),
        "phi3" => {
            if let Some(original) = metadata.whole(&key("rope.scaling.original_context_length"))? {
                set("original_max_position_embeddings", json!(original));
            }
        }
        _ => {}
    }
    // Only some layers of Qwen have a window, and the format does not say which: ignored, as in llama.cpp.
    match model_type {
        "mistral" | "mixtral" | "phi3" | "starcoder2" => set("sliding_window", json!(window)),
        "qwen2" | "qwen3" => {
            if let Some(window) = window {
                set(&key(WINDOW), json!(window));
            }
        }
        "gemma2" | "gemma3_text" => {
            let own = gemma(metadata, architecture, sizes, window)?;
            own.into_iter().for_each(|(name, value)| set(name, value));
        }
        _ => {}
    }
    add_unread(&mut config, metadata, prefix);
    Ok(config)
}

/// Writes the width of a kind's windows and the layers that have them.
fn windows_of(
    kind: &Kind,
    facts: &Facts<'_>,
    window: Option<u64>,
    mut set: impl FnMut(&str, Value),
) -> Result<()> {
    let Some(every) = kind.full_every else {
        return Ok(());
    };
    set("sliding_window", json!(window));
    if window.is_some() || kind.model_type == "cohere2" {
        let pattern = format!("{}.attention.sliding_window_pattern", facts.prefix);
        let slides = slides(facts.metadata, &pattern, every, facts.sizes.n_layers)?;
        set("layer_types", json!(words_of(&slides, window.is_some())));
    }
    Ok(())
}

/// Returns the layer types of sliding and of full attention; all are full if there is no window.
fn words_of(slides: &[bool], has_window: bool) -> Vec<&'static str> {
    let word = |slides: &bool| {
        if *slides && has_window {
            "sliding_attention"
        } else {
            "full_attention"
        }
    };
    slides.iter().map(word).collect()
}

/// Builds the keys of Gemma 2 and 3: softcaps, scale, windows and local rotary base.
fn gemma(
    metadata: &Metadata<'_>,
    architecture: &str,
    sizes: Sizes,
    window: Option<u64>,
) -> Result<Vec<(&'static str, Value)>> {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let is_second = architecture == "gemma2";
    // Files older than these keys are of Gemma 2's published models, which have these values.
    let window = window.or(is_second.then_some(4096));
    let cap = |tail: &str, of_second: f64| -> Result<Value> {
        let stored = metadata.number(&key(tail))?;
        Ok(json!(
            stored
                .or(is_second.then_some(of_second))
                .filter(|cap| *cap > 0.0)
        ))
    };
    // Older files have no key for the scale: only the 27B models use another width than that of a head.
    let largest = if is_second { 46 } else { 62 };
    let scalar = match metadata
        .number(&key("attention.scale"))?
        .filter(|s| *s > 0.0)
    {
        Some(scale) => 1.0 / (scale * scale),
        None if sizes.n_layers == largest => sizes.d_model as f64 / sizes.n_heads as f64,
        None => sizes.d_head as f64,
    };
    let usual = if is_second { 2 } else { 6 };
    let slides = slides(
        metadata,
        &key("attention.sliding_window_pattern"),
        usual,
        sizes.n_layers,
    )?;
    let layer_types = words_of(&slides, window.is_some());
    let mut own = vec![
        (
            "attn_logit_softcapping",
            cap("attn_logit_softcapping", 50.0)?,
        ),
        (
            "final_logit_softcapping",
            cap("final_logit_softcapping", 30.0)?,
        ),
        ("query_pre_attn_scalar", json!(scalar)),
        ("sliding_window", json!(window)),
        ("layer_types", json!(layer_types)),
    ];
    if !is_second {
        let local = metadata
            .number(&key("rope.freq_base_swa"))?
            .unwrap_or(10_000.0);
        own.push(("rope_local_base_freq", json!(local)));
    }
    Ok(own)
}

/// Adds unread metadata under their own keys.
fn add_unread(config: &mut Map<String, Value>, metadata: &Metadata<'_>, architecture: &str) {
    for (key, value) in metadata.unread(&format!("{architecture}.")) {
        config.insert(key.to_owned(), value);
    }
}
