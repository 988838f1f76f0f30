//! Settings that the tables of an architecture cannot express: each depends on several keys or tensors.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::facts::{Facts, KV_HEADS, WINDOW, set};
use crate::config::Config;

pub(super) fn bert(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let types = facts.rows("embeddings.token_type_embeddings.weight");
    set(config, "type_vocab_size", types.unwrap_or(1));
    Ok(())
}

/// DBRX, whose configuration has sections for attention and for experts.
pub(super) fn dbrx(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let clip = facts
        .number("attention.clamp_kqv")?
        .filter(|clip| *clip != 0.0);
    let attention = json!({"kv_n_heads": facts.sizes.n_kv_heads, "clip_qkv": clip});
    let experts = json!({
        "moe_num_experts": facts.whole("expert_count")?,
        "moe_top_k": facts.whole("expert_used_count")?,
        "ffn_hidden_size": facts.whole("feed_forward_length")?,
        "ffn_act_fn": {"name": "silu"},
        "moe_normalize_expert_weights": 1.0,
    });
    set(config, "attn_config", attention);
    set(config, "ffn_config", experts);
    Ok(())
}

/// DeepSeek 2 and 3: tells which of them it is, and sets the widths of a head's parts.
pub(super) fn deepseek(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let d_rotary = facts.sizes.d_head;
    let either = |tail: &str, older: &str| -> Result<u64> {
        let newer = facts.whole(tail)?;
        let width = newer.or(facts.whole(older)?).unwrap_or(0);
        if width == 0 {
            let problem = "expected a whole number above 0, found nothing".to_owned();
            return facts.refuse(older, problem);
        }
        Ok(width)
    };
    let d_key = either("attention.key_length_mla", "attention.key_length")?;
    let d_value = either("attention.value_length_mla", "attention.value_length")?;
    let Some(d_own) = d_key.checked_sub(d_rotary).filter(|own| *own > 0) else {
        let problem = format!("expected more than the {d_rotary} that rotate, found {d_key}");
        return facts.refuse("attention.key_length", problem);
    };
    set(config, "head_dim", d_rotary);
    set(config, "qk_rope_head_dim", d_rotary);
    set(config, "qk_nope_head_dim", d_own);
    set(config, "v_head_dim", d_value);
    let biased = facts.has_any("e_score_correction_bias");
    // Files older than the key: models with a selection bias use a sigmoid.
    let is_sigmoid = match facts.whole("expert_gating_func")? {
        None | Some(0) => biased,
        Some(1) => false,
        Some(2) => true,
        Some(other) => {
            let problem = format!("expected 1 (softmax) or 2 (sigmoid), found {other}");
            return facts.refuse("expert_gating_func", problem);
        }
    };
    let divides = facts.flag("expert_weights_norm")?.unwrap_or(false);
    let groups = facts.whole("expert_group_count")?;
    if groups.is_none() {
        // Without the key, experts are not grouped, whatever the default of Hugging Face's class is.
        set(config, "n_group", 1);
        set(config, "topk_group", 1);
    }
    let groups = groups.unwrap_or(1);
    if is_sigmoid {
        set(config, "norm_topk_prob", divides);
    } else {
        if divides {
            let problem = "true is not known for experts weighed by a softmax".to_owned();
            return facts.refuse("expert_weights_norm", problem);
        }
        set(config, "model_type", "deepseek_v2");
        let method = if groups > 1 {
            "group_limited_greedy"
        } else {
            "greedy"
        };
        set(config, "topk_method", method);
    }
    if is_sigmoid && !biased {
        let problem = "2 (sigmoid) is not known without a bias for the choice".to_owned();
        return facts.refuse("expert_gating_func", problem);
    }
    // The converter multiplies Hugging Face's mscale by 0.1.
    sharpen(facts, config, 10.0)
}

/// Sets both of yarn's mscale factors, which are equal in all models that store one of them.
fn sharpen(facts: &Facts<'_>, config: &mut Map<String, Value>, times: f64) -> Result<()> {
    let stored = facts.number("rope.scaling.yarn_log_multiplier")?;
    if let Some(stored) = stored.filter(|stored| *stored != 0.0)
        && let Some(Value::Object(scaling)) = config.get_mut("rope_scaling")
    {
        for name in ["mscale", "mscale_all_dim"] {
            set(scaling, name, stored * times);
        }
    }
    Ok(())
}

/// Mistral 3, whose later models scale up scores at far positions.
pub(super) fn mistral3(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let growth = facts.number("attention.temperature_scale")?;
    sharpen(facts, config, 1.0)?;
    if let Some(growth) = growth.filter(|growth| *growth != 0.0) {
        set(config, "model_type", "ministral3");
        if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
            set(scaling, "llama_4_scaling_beta", growth);
        } else {
            let problem = format!("expected yarn scaling beside {growth}");
            return facts.refuse("attention.temperature_scale", problem);
        }
    }
    Ok(())
}

pub(super) fn ernie_experts(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    // Read and ignored: this width disagrees with the tensors.
    facts.whole("expert_shared_feed_forward_length")?;
    let stated = facts.whole("expert_shared_count")?.unwrap_or(0);
    let d_expert = facts.whole("expert_feed_forward_length")?.unwrap_or(0);
    let is_shared = |name: &str| name.ends_with("shared_experts.up_proj.weight");
    let stored = facts.tensors.iter().find(|(name, _)| is_shared(name));
    let width = stored.map(|(_, info)| info.shape[0] as u64);
    let n = width
        .and_then(|width| width.checked_div(d_expert))
        .unwrap_or(stated);
    set(config, "moe_num_shared_experts", n);
    Ok(())
}

/// Sets whether the weights of the chosen experts are divided by their sum.
pub(super) fn weighed_experts(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    sigmoid_experts(facts, config)?;
    let divides = facts.flag("expert_weights_norm")?.unwrap_or(false);
    set(config, "norm_topk_prob", divides);
    Ok(())
}

/// MiniMax M2: experts chosen by sigmoids, with a width that has the key of other models' feed-forward layers.
pub(super) fn minimax_m2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    sigmoid_experts(facts, config)?;
    width_of_experts(facts, config)
}

/// Sets the width of experts, in models where all feed-forward layers have the same.
pub(super) fn width_of_experts(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(width) = facts.whole("expert_feed_forward_length")? {
        set(config, "intermediate_size", width);
    }
    Ok(())
}

/// AFMoE: experts chosen by sigmoids, with weights that are divided by their sum.
pub(super) fn afmoe(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    sigmoid_experts(facts, config)?;
    if let Some(divides) = facts.flag("expert_weights_norm")? {
        set(config, "route_norm", divides);
    }
    Ok(())
}

/// Refuses experts that are not chosen by sigmoids.
pub(super) fn sigmoid_experts(facts: &Facts<'_>, _: &mut Map<String, Value>) -> Result<()> {
    if let Some(kind) = facts
        .whole("expert_gating_func")?
        .filter(|kind| ![0, 2].contains(kind))
    {
        let problem = format!("expected 2 (sigmoid), found {kind}");
        return facts.refuse("expert_gating_func", problem);
    }
    Ok(())
}

/// Llama, Mistral and Mixtral, whose files name one architecture.
pub(super) fn llama(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(n_experts) = facts.whole("expert_count")?.filter(|n| *n > 0) {
        set(config, "model_type", "mixtral");
        set(config, "num_local_experts", n_experts);
        let n_used = facts.whole("expert_used_count")?;
        set(config, "num_experts_per_tok", n_used);
    } else if facts.window()?.is_some() {
        set(config, "model_type", "mistral");
    } else {
        for (name, probe) in [
            ("attention_bias", "model.layers.0.self_attn.q_proj.bias"),
            ("mlp_bias", "model.layers.0.mlp.up_proj.bias"),
        ] {
            set(config, name, facts.has(probe));
        }
        return Ok(());
    }
    window(facts, config)
}

/// OLMo 2 and 3: only the latter has windows.
pub(super) fn olmo2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if facts.window()?.is_some() {
        set(config, "model_type", "olmo3");
    }
    Ok(())
}

/// GPT-OSS does not round the ends of yarn's band. Only recent files state this, but all published models have it; llama.cpp
/// rounds, whatever the file states.
pub(super) fn gpt_oss(_: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling")
        && scaling.get("rope_type") == Some(&json!("yarn"))
        && !scaling.contains_key("truncate")
    {
        set(scaling, "truncate", false);
    }
    Ok(())
}

/// Whether a configuration has yarn scaling.
pub(super) fn has_yarn(config: &Config) -> bool {
    let scaling = config.get("rope_scaling");
    scaling.and_then(|scaling| scaling.get("rope_type")) == Some(&json!("yarn"))
}

/// All settings of GPT-2, which has hardly any of the usual ones.
pub(super) fn gpt2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "model_type", "gpt2");
    set(config, "activation_function", "gelu_new");
    let sizes = facts.sizes;
    for (name, size) in [
        ("n_layer", sizes.n_layers),
        ("n_embd", sizes.d_model),
        ("n_head", sizes.n_heads),
    ] {
        set(config, name, size);
    }
    for (usual, own) in [
        ("intermediate_size", "n_inner"),
        ("max_position_embeddings", "n_positions"),
    ] {
        let length = config.remove(usual).unwrap_or_default();
        set(config, own, length);
    }
    if let Some(eps) = facts.number("attention.layer_norm_epsilon")? {
        set(config, "layer_norm_epsilon", eps);
    }
    Ok(())
}

/// Falcon: grouped-query or multi-query attention, with two norms in the largest models.
pub(super) fn falcon(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_grouped = facts.sizes.n_kv_heads > 1;
    set(config, "new_decoder_architecture", is_grouped);
    set(config, "multi_query", !is_grouped);
    set(config, "parallel_attn", true);
    let has_two = facts.has("transformer.h.0.ln_attn.weight");
    let n_norms = if has_two { 2 } else { 1 };
    set(config, "num_ln_in_parallel_attn", n_norms);
    let d_mlp = config.remove("intermediate_size");
    set(config, "ffn_hidden_size", d_mlp.unwrap_or_default());
    // Read and ignored: older files state the order of rows, but there is only one.
    facts.metadata.word(&facts.key("tensor_data_layout"))?;
    Ok(())
}

pub(super) fn gpt_neox(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_parallel = facts.flag("use_parallel_residual")?.unwrap_or(true);
    set(config, "use_parallel_residual", is_parallel);
    Ok(())
}

pub(super) fn stablelm(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_parallel = facts.flag("use_parallel_residual")?.unwrap_or(false);
    // Models with one norm per layer have parallel branches.
    let has_one = !facts.has("model.layers.0.post_attention_layernorm.weight");
    set(config, "use_parallel_residual", is_parallel || has_one);
    Ok(())
}

/// LFM2: layers without key/value heads are convolutions.
pub(super) fn lfm2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(heads) = facts.wholes(KV_HEADS)? {
        let n_kv_heads = facts.sizes.n_kv_heads;
        let is_odd = heads.iter().any(|n| ![0, n_kv_heads].contains(n));
        if heads.len() as u64 != facts.sizes.n_layers || is_odd {
            let problem = format!("expected 0 or {n_kv_heads} for each layer, found {heads:?}");
            return facts.refuse(KV_HEADS, problem);
        }
        let word = |n: &u64| if *n == 0 { "conv" } else { "full_attention" };
        let types: Vec<&str> = heads.iter().map(word).collect();
        set(config, "layer_types", types);
    }
    let is_tied = config.remove("tie_word_embeddings");
    set(config, "tie_embedding", is_tied.unwrap_or(json!(true)));
    Ok(())
}

/// LFM2 with experts: as LFM2, and experts chosen by sigmoids.
pub(super) fn lfm2_moe(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    lfm2(facts, config)?;
    set(config, "use_expert_bias", facts.has_any(".expert_bias"));
    sigmoid_experts(facts, config)
}

/// ModernBERT: bidirectional windows in all but every n-th layer, and an activation that only later files state.
pub(super) fn modern_bert(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let window = facts.whole(WINDOW)?.unwrap_or(128);
    set(config, "local_attention", window);
    let every = facts
        .whole("attention.sliding_window_pattern")?
        .unwrap_or(3);
    set(config, "global_attn_every_n_layers", every);
    let global = config.get("rope_theta").cloned().unwrap_or_default();
    let local = facts.number("rope.freq_base_swa")?.map(Value::from);
    set(config, "local_rope_theta", local.unwrap_or(global));
    let activation = facts.metadata.word(&facts.key("hidden_activation"))?;
    let activation = activation.unwrap_or("gelu".to_owned());
    set(config, "hidden_activation", activation);
    Ok(())
}

/// MPT: only the usual ALiBi slopes, and the clip of queries, keys and values.
pub(super) fn mpt(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const SLOPES: &str = "attention.max_alibi_bias";
    if let Some(other) = facts.number(SLOPES)?.filter(|slope| *slope != 8.0) {
        return facts.refuse(SLOPES, format!("expected 8, found {other}"));
    }
    let (n_heads, n_kv_heads) = (facts.sizes.n_heads, facts.sizes.n_kv_heads);
    if n_heads != n_kv_heads {
        let problem = format!("expected {n_heads}, a key for each head, found {n_kv_heads}");
        return facts.refuse(KV_HEADS, problem);
    }
    let clip = facts
        .number("attention.clamp_kqv")?
        .filter(|clip| *clip != 0.0);
    set(config, "attn_config", json!({"clip_qkv": clip}));
    Ok(())
}

/// Writes a window that all layers have, or none.
pub(super) fn window(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "sliding_window", facts.window()?);
    Ok(())
}

/// Phi-3 and its mixture of experts, whose configurations state the context length before scaling.
pub(super) fn phi3(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(original) = facts.whole("rope.scaling.original_context_length")? {
        set(config, "original_max_position_embeddings", original);
    }
    window(facts, config)
}

/// Qwen 2 and 3: only some layers have the window, and the format does not say which. It is ignored, as in llama.cpp, but stays
/// in the configuration under the file's key, for a remark.
pub(super) fn window_of_some_layers(
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    if let Some(window) = facts.window()? {
        set(config, &facts.key(WINDOW), window);
    }
    Ok(())
}

/// StarCoder: the metadata always say multi-query attention; the rows of the tensor show whether it is so.
pub(super) fn starcoder(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let rows = facts.rows("transformer.h.0.attn.c_attn.weight");
    let shares = rows != Some(3 * facts.sizes.d_model);
    set(config, "multi_query", shares);
    Ok(())
}

/// T5 and models with its tensor names: the tensors show gates and per-layer biases.
pub(super) fn t5(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let bias_of = |layer_idx: usize| {
        format!("encoder.block.{layer_idx}.layer.0.SelfAttention.relative_attention_bias.weight")
    };
    let has_bias_by_layer = facts.sizes.n_layers > 1 && facts.has(&bias_of(1));
    let model_type = if has_bias_by_layer { "umt5" } else { "t5" };
    set(config, "model_type", model_type);
    let is_gated = facts.has("encoder.block.0.layer.1.DenseReluDense.wi_0.weight");
    let activation = if is_gated { "gated-gelu" } else { "relu" };
    set(config, "feed_forward_proj", activation);
    let n_decoder = facts
        .whole("decoder_block_count")?
        .unwrap_or(facts.sizes.n_layers);
    set(config, "num_decoder_layers", n_decoder);
    if let Some(n) = facts.whole("attention.relative_buckets_count")? {
        set(config, "relative_attention_num_buckets", n);
    }
    if is_gated && !has_bias_by_layer && !facts.has("lm_head.weight") {
        // Only the first T5 scales the logits of a tied head, and it has no gates.
        set(config, "scale_decoder_outputs", false);
    }
    if let Some(start) = facts.whole("decoder_start_token_id")? {
        set(config, "decoder_start_token_id", start);
    }
    Ok(())
}
