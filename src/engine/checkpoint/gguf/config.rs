//! Metadata of a GGUF file → the configuration that Hugging Face would write for the same model.

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::metadata::Metadata;
use super::rope;
use super::value::Value as Stored;
use crate::checkpoint::config::Config;
use crate::checkpoint::tensors::Tensors;
use crate::error::{Error, Result};

/// Larger values are damage, not models; `config` says the same of its keys.
const MOST_LAYERS: u64 = 4096;
const LARGEST: u64 = 1 << 26;

/// Keys that change what a model computes, which none of these architectures is known to have, and the value
/// at which they change nothing.
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

/// The key of a window.
const WINDOW: &str = "attention.sliding_window";

/// Kinds of models whose converters leave out how positions are scaled, or windows.
const LEFT_OUT: [&str; 4] = ["llama", "mixtral", "qwen2", "qwen3"];

/// What there is to say of settings that a converter leaves out, or that llama.cpp does not use.
pub(super) fn remark(config: &Config) -> Option<String> {
    let kind = config.get("model_type")?.as_str()?;
    if !LEFT_OUT.contains(&kind) {
        return None;
    }
    if let Some(window) = config.get(&format!("{kind}.{WINDOW}")) {
        return Some(format!(
            "the GGUF file states a window of {window} and not for which layers: it is left out, as llama.cpp does; \
             --set window={window} gives it to every layer"
        ));
    }
    let has = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    (!has("rope_scaling") && !has("sliding_window")).then(|| {
        "the GGUF file states neither a scaling of rotary positions nor a window: converters leave some out, so that the model \
         as Hugging Face runs it may differ; it is read as llama.cpp reads it"
            .to_owned()
    })
}

/// The sizes that the tensors' order depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub n_layers: u64,
    pub d_model: u64,
    pub n_heads: u64,
    pub n_kv_heads: u64,
    pub d_head: u64,
}

/// Reads the sizes.
///
/// # Errors
/// When one is missing or cannot be right.
pub(super) fn sizes(metadata: &Metadata<'_>, architecture: &str) -> Result<Sizes> {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let n_layers = metadata.size(&key("block_count"), MOST_LAYERS)?;
    let d_model = metadata.size(&key("embedding_length"), LARGEST)?;
    let n_heads = metadata.size(&key("attention.head_count"), LARGEST)?;
    let n_kv_heads = match metadata.get(&key("attention.head_count_kv")) {
        Some(_) => metadata.size(&key("attention.head_count_kv"), LARGEST)?,
        None => n_heads,
    };
    let d_head = match metadata.get(&key("attention.key_length")) {
        Some(_) => metadata.size(&key("attention.key_length"), LARGEST)?,
        None => (d_model / n_heads).max(1),
    };
    let d_value = metadata
        .whole(&key("attention.value_length"))?
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

/// The configuration in Hugging Face's words; keys of the architecture that mean nothing here keep their names,
/// so that they show as never read.
///
/// # Errors
/// When a value is missing, of the wrong type, or means something that is not known.
pub(super) fn hugging_face(
    metadata: &Metadata<'_>,
    architecture: &str,
    sizes: Sizes,
    tensors: &Tensors,
) -> Result<Map<String, Value>> {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let kind = Kind::of(architecture);
    for (tail, neutral) in UNKNOWN_HERE {
        // Gemma's own scale is read below, others by their kinds.
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
    let sees_both = ["bert", "gemma-embedding"].contains(&architecture);
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
    set("tie_word_embeddings", json!(!has("lm_head.weight")));
    let n_ctx = metadata.whole(&key("context_length"))?;
    let d_mlp = metadata.whole(&key("feed_forward_length"))?;
    // The embedding decides: the metadata often lacks the key, and a padded embedding has more rows.
    let rows = |name: &str| tensors.info(name).map(|info| info.shape[0] as u64);
    let d_vocab = rows("model.embed_tokens.weight")
        .or(rows("transformer.wte.weight"))
        .or(rows("embeddings.word_embeddings.weight"));
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
        add_unread(&mut config, metadata, architecture);
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
    // Phi-3 and StarCoder 2 have no key for the width of a head: it is what their heads divide.
    let divides = sizes.d_head * sizes.n_heads == sizes.d_model;
    let is_derived = ["bert", "olmo", "phi2", "phi3", "stablelm", "starcoder2"];
    if !(divides && is_derived.contains(&architecture)) {
        set("head_dim", json!(sizes.d_head));
    }
    let eps = match (architecture, kind) {
        (_, Some(kind)) => kind.eps,
        ("starcoder2", None) => ("attention.layer_norm_epsilon", "norm_epsilon"),
        _ => ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    };
    if let Some(number) = metadata.number(&key(eps.0))? {
        set(eps.1, json!(number));
    }
    let theta = metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    set("rope_theta", json!(theta));
    if let Some(scaling) = rope::scaling(metadata, architecture, tensors, theta, sizes.d_head)? {
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
    // Without the key the whole head rotates, whatever share the family takes for granted.
    let is_part = d_rotary != sizes.d_head || kind.is_some_and(|kind| kind.rotates_in_part);
    if is_part {
        set(
            "partial_rotary_factor",
            json!(d_rotary as f64 / sizes.d_head as f64),
        );
    }
    // 0 says that there is no window.
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
            // Gemma 1 came with both spellings; the activation is the same.
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
    if architecture == "bert" {
        let types = rows("embeddings.token_type_embeddings.weight");
        set("type_vocab_size", json!(types.unwrap_or(1)));
    }
    if architecture == "stablelm" {
        let is_parallel = metadata.flag(&key("use_parallel_residual"))?;
        set("use_parallel_residual", json!(is_parallel.unwrap_or(false)));
    }
    if sees_both && architecture != "bert" {
        set("use_bidirectional_attention", json!(true));
    }
    // Positions of pictures are the same as others in a text.
    metadata.get(&key("rope.dimension_sections"));
    if let Some(kind) = kind {
        kind.fill(&mut config, metadata, tensors)?;
        let set = |name: &str, value: Value| {
            config.insert(name.to_owned(), value);
        };
        windows_of(kind, metadata, sizes, window, set)?;
        if !config.contains_key("rope_scaling") && kind.model_type == "gpt_oss" {
            config.insert("rope_scaling".to_owned(), json!({"rope_type": "default"}));
        }
        add_unread(&mut config, metadata, architecture);
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
    // Qwen's windows hold for some layers only, and the format does not say which: left out, as llama.cpp does.
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
    add_unread(&mut config, metadata, architecture);
    Ok(config)
}

/// Puts the windows of a kind into a configuration: their width, and the layers that have them.
fn windows_of(
    kind: &Kind,
    metadata: &Metadata<'_>,
    sizes: Sizes,
    window: Option<u64>,
    mut set: impl FnMut(&str, Value),
) -> Result<()> {
    let Some(every) = kind.full_every else {
        return Ok(());
    };
    set("sliding_window", json!(window));
    if window.is_some() || kind.model_type == "cohere2" {
        let pattern = format!("{}.attention.sliding_window_pattern", kind.architecture);
        let slides = slides(metadata, &pattern, every, sizes.n_layers)?;
        let word = |slides: bool| {
            if slides && window.is_some() {
                "sliding_attention"
            } else {
                "full_attention"
            }
        };
        let types: Vec<&str> = slides.into_iter().map(word).collect();
        set("layer_types", json!(types));
    }
    Ok(())
}

/// Softcaps, scale, windows and local positions of Gemma 2 and 3.
fn gemma(
    metadata: &Metadata<'_>,
    architecture: &str,
    sizes: Sizes,
    window: Option<u64>,
) -> Result<Vec<(&'static str, Value)>> {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let is_second = architecture == "gemma2";
    // Files from before these keys existed are Gemma 2's own models, which have these values.
    let window = window.or(is_second.then_some(4096));
    let cap = |tail: &str, of_second: f64| -> Result<Value> {
        let stored = metadata.number(&key(tail))?;
        Ok(json!(
            stored
                .or(is_second.then_some(of_second))
                .filter(|cap| *cap > 0.0)
        ))
    };
    // The format had no key for the scale: the 27-billion models alone divide by another width than the head's.
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
    let layer_types: Vec<&str> = slides
        .into_iter()
        .map(|slides| {
            if slides && window.is_some() {
                "sliding_attention"
            } else {
                "full_attention"
            }
        })
        .collect();
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

/// Which layers see a window only: listed, or all but every so many; 0 for all.
fn slides(metadata: &Metadata<'_>, key: &str, usual: u64, n_layers: u64) -> Result<Vec<bool>> {
    if let Some(Stored::List(list)) = metadata.get(key) {
        let listed: Option<Vec<bool>> = metadata
            .elements(list)?
            .into_iter()
            .map(|value| match value {
                Stored::Bool(slides) => Some(slides),
                _ => None,
            })
            .collect();
        return listed
            .filter(|listed| listed.len() as u64 == n_layers)
            .ok_or_else(|| {
                let problem = format!("expected one truth value for each of {n_layers} layers");
                Error::config(metadata.path, key, problem)
            });
    }
    let every = metadata.whole(key)?.unwrap_or(usual);
    Ok((1..=n_layers)
        .map(|n| every == 0 || n % every != 0)
        .collect())
}

/// Adds what nobody asked for under the file's own keys.
fn add_unread(config: &mut Map<String, Value>, metadata: &Metadata<'_>, architecture: &str) {
    for (key, value) in metadata.unread(&format!("{architecture}.")) {
        config.insert(key.to_owned(), value);
    }
}
