//! Settings of single kinds of models that the tables cannot express: each depends on several keys or tensors.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::architectures::Architecture;
use super::facts::{Facts, Sizes, set};
use super::header::StoredTensor;
use super::metadata::Metadata;
use super::value::Kind;
use crate::Dtype;
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;

/// Distance beyond which T5 puts all keys into the last bucket; the format has no key for it.
const T5_DISTANCE: u64 = 128;
/// Router jitter of the published Phi-MoE models.
const PHI_JITTER: f64 = 0.01;

/// Corrects the architecture where a converter uses one name for several kinds: a BERT without segments is a DistilBERT, a
/// Granite 4 without Granite's multipliers is a Bamba, and a Granite with experts and a shared expert has the tensor names of
/// Granite 4.
pub(super) fn corrected_architecture<'a>(
    stated: &'static Architecture,
    metadata: &Metadata<'_>,
    mut tensors: impl Iterator<Item = &'a StoredTensor>,
) -> &'static Architecture {
    let states = |tail: &str| metadata.get(&format!("{}.{tail}", stated.name)).is_some();
    let mut has = |ending: &str| tensors.any(|tensor| tensor.name.ends_with(ending));
    let meant = match stated.name {
        "bert" if !has("token_types.weight") => "distilbert",
        "granitehybrid" if !states("attention.scale") && !has("ffn_gate_inp.weight") => "bamba",
        "granitemoe" if has("ffn_up_shexp.weight") => "granitehybrid",
        name => name,
    };
    Architecture::named(meant).unwrap_or(stated)
}

/// Adds tensors that a converter moved into metadata: the parameters of the learned activation xIELU.
///
/// # Errors
/// When a list does not have one number per layer.
pub(super) fn add_values(
    metadata: &Metadata<'_>,
    architecture: &Architecture,
    sizes: Sizes,
    tensors: &mut Tensors,
) -> Result<()> {
    if architecture.name != "apertus" {
        return Ok(());
    }
    for name in ["alpha_p", "alpha_n", "beta", "eps"] {
        let key = format!("xielu.{name}");
        let Some(list) = metadata.list(&key)? else {
            continue;
        };
        if list.kind != Kind::F32 || list.len as u64 != sizes.n_layers {
            let problem = format!("expected {} numbers of 32 bits", sizes.n_layers);
            return Err(Error::config(metadata.path, key, problem));
        }
        for (layer_idx, start) in list.bytes.clone().step_by(4).enumerate() {
            let info = TensorInfo {
                dtype: Dtype::F32,
                shape: vec![1],
                strides: None,
                file_idx: 0,
                bytes: start..start + 4,
                stored: Stored::AsIs,
                scales: None,
                made: None,
            };
            let name = format!("{}.{layer_idx}.mlp.act_fn.{name}", architecture.layers);
            tensors.index.insert(name, info);
        }
    }
    Ok(())
}

/// Drops the divisors of rotary frequencies, which are now in the configuration.
pub(super) fn forget_factors(tensors: &mut Tensors) {
    for name in ["rope_freqs", "rope_factors_long", "rope_factors_short"] {
        tensors.forget(&format!("{name}.weight"));
    }
}

pub(super) fn bert(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let types = facts.rows("embeddings.token_type_embeddings.weight");
    set(config, "type_vocab_size", json!(types.unwrap_or(1)));
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
        match newer.or(facts.whole(older)?) {
            Some(width) if width > 0 => Ok(width),
            _ => facts.refuse(
                older,
                "expected a whole number above 0, found nothing".to_owned(),
            ),
        }
    };
    let d_key = either("attention.key_length_mla", "attention.key_length")?;
    let d_value = either("attention.value_length_mla", "attention.value_length")?;
    let Some(d_own) = d_key.checked_sub(d_rotary).filter(|own| *own > 0) else {
        let problem = format!("expected more than the {d_rotary} that rotate, found {d_key}");
        return facts.refuse("attention.key_length", problem);
    };
    set(config, "head_dim", json!(d_rotary));
    set(config, "qk_rope_head_dim", json!(d_rotary));
    set(config, "qk_nope_head_dim", json!(d_own));
    set(config, "v_head_dim", json!(d_value));
    let has_bias = facts.has("model.layers.0.self_attn.kv_a_proj_with_mqa.bias");
    set(config, "attention_bias", json!(has_bias));
    let biased = facts
        .tensors
        .iter()
        .any(|(name, _)| name.ends_with("e_score_correction_bias"));
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
        set(config, "n_group", json!(1));
        set(config, "topk_group", json!(1));
    }
    let groups = groups.unwrap_or(1);
    if is_sigmoid {
        set(config, "norm_topk_prob", json!(divides));
    } else {
        if divides {
            let problem = "true is not known for experts weighed by a softmax".to_owned();
            return facts.refuse("expert_weights_norm", problem);
        }
        set(config, "model_type", json!("deepseek_v2"));
        let method = if groups > 1 {
            "group_limited_greedy"
        } else {
            "greedy"
        };
        set(config, "topk_method", json!(method));
    }
    if is_sigmoid && !biased {
        let problem = "2 (sigmoid) is not known without a bias for the choice".to_owned();
        return facts.refuse("expert_gating_func", problem);
    }
    // The converter multiplies Hugging Face's mscale by 0.1.
    sharpen(
        config,
        facts.number("rope.scaling.yarn_log_multiplier")?,
        10.0,
    );
    Ok(())
}

/// Sets both of yarn's mscale factors, which are equal in all models that store one of them.
fn sharpen(config: &mut Map<String, Value>, stored: Option<f64>, times: f64) {
    let Some(stored) = stored.filter(|stored| *stored != 0.0) else {
        return;
    };
    if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
        for name in ["mscale", "mscale_all_dim"] {
            scaling.insert(name.to_owned(), json!(stored * times));
        }
    }
}

/// Mistral 3, whose later models scale up scores at far positions.
pub(super) fn mistral3(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let growth = facts.number("attention.temperature_scale")?;
    sharpen(
        config,
        facts.number("rope.scaling.yarn_log_multiplier")?,
        1.0,
    );
    if let Some(growth) = growth.filter(|growth| *growth != 0.0) {
        set(config, "model_type", json!("ministral3"));
        if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
            scaling.insert("llama_4_scaling_beta".to_owned(), json!(growth));
        } else {
            let problem = format!("expected yarn scaling beside {growth}");
            return facts.refuse("attention.temperature_scale", problem);
        }
    }
    Ok(())
}

/// EuroBERT: files of this kind have no head.
pub(super) fn eurobert(_: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "architectures", json!(["EuroBertModel"]));
    Ok(())
}

pub(super) fn ernie_experts(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    // Read and ignored: this width disagrees with the tensors.
    facts.whole("expert_shared_feed_forward_length")?;
    let stated = facts.whole("expert_shared_count")?.unwrap_or(0);
    let d_expert = facts.whole("expert_feed_forward_length")?.unwrap_or(0);
    let stored = facts
        .tensors
        .iter()
        .find(|(name, _)| name.ends_with("shared_experts.up_proj.weight"));
    let width = stored.map(|(_, info)| info.shape[0] as u64);
    let n = width
        .and_then(|width| width.checked_div(d_expert))
        .unwrap_or(stated);
    set(config, "moe_num_shared_experts", json!(n));
    Ok(())
}

/// Sets whether the weights of the chosen experts are divided by their sum.
pub(super) fn weighed_experts(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(kind) = facts
        .whole("expert_gating_func")?
        .filter(|kind| ![0, 2].contains(kind))
    {
        let problem = format!("expected 2 (sigmoid), found {kind}");
        return facts.refuse("expert_gating_func", problem);
    }
    let divides = facts.flag("expert_weights_norm")?.unwrap_or(false);
    set(config, "norm_topk_prob", json!(divides));
    Ok(())
}

/// Falcon: grouped-query or multi-query attention, with two norms in the largest models.
pub(super) fn falcon(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_grouped = facts.sizes.n_kv_heads > 1;
    set(config, "new_decoder_architecture", json!(is_grouped));
    set(config, "multi_query", json!(!is_grouped));
    set(config, "parallel_attn", json!(true));
    let has_two = facts.has("transformer.h.0.ln_attn.weight");
    set(
        config,
        "num_ln_in_parallel_attn",
        json!(if has_two { 2 } else { 1 }),
    );
    let has_bias = facts.has("transformer.h.0.self_attention.query_key_value.bias");
    set(config, "bias", json!(has_bias));
    let d_mlp = config.remove("intermediate_size");
    set(config, "ffn_hidden_size", d_mlp.unwrap_or_default());
    // Read and ignored: older files state the order of rows, but there is only one.
    facts.metadata.word(&facts.key("tensor_data_layout"))?;
    Ok(())
}

pub(super) fn gpt_neox(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_parallel = facts.flag("use_parallel_residual")?.unwrap_or(true);
    set(config, "use_parallel_residual", json!(is_parallel));
    let has_bias = facts.has("gpt_neox.layers.0.attention.query_key_value.bias");
    set(config, "attention_bias", json!(has_bias));
    Ok(())
}

pub(super) fn stablelm(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let is_parallel = facts.flag("use_parallel_residual")?.unwrap_or(false);
    // Models with one norm per layer have parallel branches.
    let has_one = !facts.has("model.layers.0.post_attention_layernorm.weight");
    set(
        config,
        "use_parallel_residual",
        json!(is_parallel || has_one),
    );
    let has_norms = facts.has("model.layers.0.self_attn.q_layernorm.norms.0.weight");
    set(config, "qk_layernorm", json!(has_norms));
    Ok(())
}

/// LFM2: layers without key/value heads are convolutions.
pub(super) fn lfm2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const HEADS: &str = "attention.head_count_kv";
    let stored = facts.metadata.get(&facts.key(HEADS));
    if matches!(stored, Some(super::value::Value::List(_))) {
        let heads = facts.metadata.wholes(&facts.key(HEADS))?;
        let n_kv_heads = facts.sizes.n_kv_heads;
        let is_odd = heads.iter().any(|n| ![0, n_kv_heads].contains(n));
        if heads.len() as u64 != facts.sizes.n_layers || is_odd {
            let problem = format!("expected 0 or {n_kv_heads} for each layer, found {heads:?}");
            return facts.refuse(HEADS, problem);
        }
        let word = |n: &u64| if *n == 0 { "conv" } else { "full_attention" };
        let types: Vec<&str> = heads.iter().map(word).collect();
        set(config, "layer_types", json!(types));
    }
    let has_bias = facts
        .tensors
        .iter()
        .any(|(name, _)| name.ends_with("conv.in_proj.bias"));
    set(config, "conv_bias", json!(has_bias));
    let is_tied = config.remove("tie_word_embeddings");
    set(config, "tie_embedding", is_tied.unwrap_or(json!(true)));
    Ok(())
}

/// ModernBERT: bidirectional windows in all but every n-th layer, and an activation that only later files state.
pub(super) fn modern_bert(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let window = facts.whole("attention.sliding_window")?.unwrap_or(128);
    set(config, "local_attention", json!(window));
    let every = facts
        .whole("attention.sliding_window_pattern")?
        .unwrap_or(3);
    set(config, "global_attn_every_n_layers", json!(every));
    let local = facts.number("rope.freq_base_swa")?;
    let global = config.get("rope_theta").cloned();
    set(
        config,
        "local_rope_theta",
        local.map_or(global.unwrap_or(json!(10_000.0)), |theta| json!(theta)),
    );
    let named = facts.metadata.word(&facts.key("hidden_activation"))?;
    set(
        config,
        "hidden_activation",
        json!(named.unwrap_or("gelu".to_owned())),
    );
    for (name, probe) in [
        ("attention_bias", "layers.0.attn.Wqkv.bias"),
        ("mlp_bias", "layers.0.mlp.Wi.bias"),
        ("norm_bias", "final_norm.bias"),
    ] {
        set(config, name, json!(facts.has(probe)));
    }
    Ok(())
}

/// MPT: only the usual ALiBi slopes, and the clip of queries, keys and values.
pub(super) fn mpt(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const SLOPES: &str = "attention.max_alibi_bias";
    if let Some(other) = facts.number(SLOPES)?.filter(|slope| *slope != 8.0) {
        return facts.refuse(SLOPES, format!("expected 8, found {other}"));
    }
    let Sizes {
        n_heads,
        n_kv_heads,
        ..
    } = facts.sizes;
    if n_heads != n_kv_heads {
        let problem = format!("expected {n_heads}, a key for each head, found {n_kv_heads}");
        return facts.refuse("attention.head_count_kv", problem);
    }
    let clip = facts
        .number("attention.clamp_kqv")?
        .filter(|clip| *clip != 0.0);
    set(config, "attn_config", json!({"clip_qkv": clip}));
    Ok(())
}

pub(super) fn phimoe(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let window = facts
        .whole("attention.sliding_window")?
        .filter(|window| *window > 0);
    set(config, "sliding_window", json!(window));
    set(config, "router_jitter_noise", json!(PHI_JITTER));
    if let Some(original) = facts.whole("rope.scaling.original_context_length")? {
        set(config, "original_max_position_embeddings", json!(original));
    }
    Ok(())
}

/// StarCoder: the metadata always say multi-query attention; the rows of the tensor show whether it is so.
pub(super) fn starcoder(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let rows = facts.rows("transformer.h.0.attn.c_attn.weight");
    let shares = rows != Some(3 * facts.sizes.d_model);
    set(config, "multi_query", json!(shares));
    Ok(())
}

/// T5 and models with its tensor names: the tensors show gates and per-layer biases.
pub(super) fn t5(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let bias_of = |layer_idx: usize| {
        format!("encoder.block.{layer_idx}.layer.0.SelfAttention.relative_attention_bias.weight")
    };
    let has_bias_by_layer = facts.sizes.n_layers > 1 && facts.has(&bias_of(1));
    set(
        config,
        "model_type",
        json!(if has_bias_by_layer { "umt5" } else { "t5" }),
    );
    let is_gated = facts.has("encoder.block.0.layer.1.DenseReluDense.wi_0.weight");
    let activation = if is_gated { "gated-gelu" } else { "relu" };
    set(config, "feed_forward_proj", json!(activation));
    let n_decoder = facts
        .whole("decoder_block_count")?
        .unwrap_or(facts.sizes.n_layers);
    set(config, "num_decoder_layers", json!(n_decoder));
    if let Some(n) = facts.whole("attention.relative_buckets_count")? {
        set(config, "relative_attention_num_buckets", json!(n));
    }
    set(
        config,
        "relative_attention_max_distance",
        json!(T5_DISTANCE),
    );
    if is_gated && !has_bias_by_layer && !facts.has("lm_head.weight") {
        // Only the first T5 scales the logits of a tied head, and it has no gates.
        set(config, "scale_decoder_outputs", json!(false));
    }
    if facts.prefix == "t5encoder" {
        set(config, "architectures", json!(["T5EncoderModel"]));
    }
    if let Some(start) = facts.whole("decoder_start_token_id")? {
        set(config, "decoder_start_token_id", json!(start));
    }
    Ok(())
}
