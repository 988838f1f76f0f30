//! LitGPT: `transformer.h.0.attn.qkv.weight`, with `model_config.yaml` beside `lit_model.pth`.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "LitGPT (transformer.h.0.attn.qkv.weight)",
    describe,
};

const PROBE: &str = "transformer.h.0.attn.qkv.weight";

const PARTS: &[&str] = &[
    "attn.qkv.weight",
    "attn.qkv.bias",
    "attn.proj.weight",
    "attn.proj.bias",
    "attn.norm_q.weight",
    "attn.norm_k.weight",
    "norm_1.weight",
    "norm_1.bias",
    "norm_2.weight",
    "norm_2.bias",
    "post_attention_norm.weight",
    "post_mlp_norm.weight",
    "mlp.fc.weight",
    "mlp.fc.bias",
    "mlp.fc_1.weight",
    "mlp.fc_1.bias",
    "mlp.fc_2.weight",
    "mlp.fc_2.bias",
    "mlp.proj.weight",
    "mlp.proj.bias",
];

/// Keys that change attention in ways this layout does not support, and the values that turn them off.
const OFF: [&str; 6] = [
    "rope_adjustments",
    "attention_scores_scalar",
    "attention_logit_softcapping",
    "sliding_window_size",
    "rope_local_base_freq",
    "latent_attention",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    if !facts.has(PROBE) || !facts.has("transformer.wte.weight") {
        return Ok(false);
    }
    for key in OFF {
        let is_off = |value: &Value| value.is_null() || *value == Value::Bool(false);
        if let Some((place, value)) = facts.stated(&[key]).filter(|(_, value)| !is_off(value)) {
            let problem = format!(
                "{place} is {value}, which is not read in this layout; the checkpoint as Hugging Face has it opens"
            );
            return Err(facts.at(PROBE, problem));
        }
    }
    facts.layers("n_layers", "transformer.h.", "attn.qkv.weight", PARTS)?;
    facts.by_names("model_type", "described");
    facts.needed("n_heads", "n_heads", &["n_head"]);
    let n_heads = facts.size("n_heads", "n_heads");
    let [_, d_q] = facts.matrix("transformer.h.0.attn.proj.weight")?;
    let [n_rows, d_model] = facts.matrix(PROBE)?;
    if let Some(d_head) = n_heads.filter(|n| d_q.is_multiple_of(*n)).map(|n| d_q / n)
        && d_head > 0
    {
        let n_kv_heads = n_rows.saturating_sub(d_q) / 2 / d_head;
        facts.by_shape("n_kv_heads", n_kv_heads, PROBE, &["n_query_groups"])?;
        facts.by_shape(
            "d_head",
            d_head,
            "transformer.h.0.attn.proj.weight",
            &["head_size"],
        )?;
        let share = facts.stated(&["rotary_percentage"]);
        match share.and_then(|(_, value)| value.as_f64()) {
            Some(share) => facts.by_names("d_rotary", ((share * d_head as f64) as usize).max(2)),
            None => facts.needed("d_rotary", "d_rotary", &[]),
        }
    }
    let word = |facts: &Facts<'_>, key: &str| {
        let stated = facts.stated(&[key]);
        stated.and_then(|(_, value)| value.as_str().map(str::to_owned))
    };
    let flag =
        |facts: &Facts<'_>, key: &str| facts.stated(&[key]).is_some_and(|(_, value)| value == true);
    let has = |facts: &Facts<'_>, part: &str| facts.has(&format!("transformer.h.0.{part}"));
    let name = |part: &str| format!("transformer.h.{{layer}}.{part}");

    let mut tensors = Map::new();
    let pair = |facts: &Facts<'_>, base: &str| {
        let mut value = json!({ "weight": name(&format!("{base}.weight")) });
        if has(facts, &format!("{base}.bias")) {
            value["bias"] = name(&format!("{base}.bias")).into();
        }
        value
    };
    let mut put = |key: &str, value: Value| {
        tensors.insert(key.to_owned(), value);
    };
    put("tokens", "transformer.wte.weight".into());
    put("qkv", pair(facts, "attn.qkv"));
    put("o", pair(facts, "attn.proj"));
    put("down", pair(facts, "mlp.proj"));
    let is_gated = has(facts, "mlp.fc_1.weight");
    if is_gated {
        put("gate", pair(facts, "mlp.fc_1"));
        put("up", pair(facts, "mlp.fc_2"));
    } else {
        put("up", pair(facts, "mlp.fc"));
    }
    let lacks_second = !has(facts, "norm_2.weight") && has(facts, "norm_1.weight");
    let is_shared = flag(facts, "shared_attention_norm") || lacks_second;
    for (key, part) in [
        ("attn_pre", "norm_1"),
        ("mlp_pre", if is_shared { "norm_1" } else { "norm_2" }),
        ("attn_out", "post_attention_norm"),
        ("mlp_out", "post_mlp_norm"),
        ("q_norm", "attn.norm_q"),
        ("k_norm", "attn.norm_k"),
    ] {
        // OLMo's norms have neither gains nor biases.
        let is_bare = key.ends_with("_pre")
            && facts.stated(&[part]).is_none_or(|(_, value)| value == true)
            && !has(facts, "norm_1.weight")
            && !has(facts, "post_attention_norm.weight");
        if has(facts, &format!("{part}.weight")) {
            put(key, pair(facts, part));
        } else if is_bare {
            put(key, json!({}));
        }
    }
    let around = |facts: &Facts<'_>, base: &str| {
        let mut value = json!({ "weight": format!("{base}.weight") });
        if facts.has(&format!("{base}.bias")) {
            value["bias"] = format!("{base}.bias").into();
        }
        value
    };
    let final_norm = if facts.has("transformer.ln_f.weight") {
        around(facts, "transformer.ln_f")
    } else {
        json!({})
    };
    put("final_norm", final_norm);
    if facts.has("lm_head.weight") {
        put("unembed", around(facts, "lm_head"));
    }
    facts.by_names("tensors", tensors);
    match facts.stated(&["parallel_residual"]) {
        Some((_, value)) => {
            let block = if value == true { "parallel" } else { "serial" };
            facts.by_names("block", block);
        }
        None if lacks_second => facts.by_names("block", "parallel"),
        None => facts.needed("block", "block", &[]),
    }
    let has_no_file = facts.stated(&["n_layer", "name"]).is_none();
    if has_no_file {
        facts.remarks.push(
            "LitGPT without model_config.yaml: taken as usual are the activation, a scale of 1/√d_head, no window, no caps, no rescaled \
             rotary frequencies and, for RMS norms, gains that are not added to 1; copy the file beside the weights if it is there"
                .to_owned(),
        );
    }
    let is_gemma = word(facts, "name").is_some_and(|name| name.contains("Gemma"));
    let has_bias = has(facts, "norm_1.bias");
    let is_rms = word(facts, "norm_class_name").map_or(!has_bias, |name| name == "RMSNorm");
    facts.by_names("norm", if is_rms { "rms" } else { "layer" });
    if is_rms && is_gemma {
        facts.by_names("norm_adds_one", true);
    }
    facts.by_statement("norm_eps", &["norm_eps"]);
    let approximates = word(facts, "gelu_approximate").is_some_and(|word| word == "tanh");
    let gelu = if approximates { "gelu_new" } else { "gelu" };
    match word(facts, "mlp_class_name").as_deref() {
        Some("LLaMAMLP") => facts.by_names("activation", "silu"),
        Some(_) => facts.by_names("activation", gelu),
        None if is_gated => facts.by_names("activation", "silu"),
        None => facts.by_names("activation", "gelu"),
    }
    facts.by_names("positions", "rotary");
    facts.needed("rope_theta", "rope_theta", &["rope_base"]);
    if flag(facts, "rope_interleave") {
        facts.by_names("rope_interleaved", true);
    }
    if flag(facts, "scale_embeddings") {
        facts.by_names("embed_scale", (d_model as f64).sqrt());
    }
    let caps = facts.stated(&["final_logit_softcapping"]);
    if let Some((place, value)) =
        caps.filter(|(_, value)| value.as_f64().is_some_and(|cap| cap > 0.0))
    {
        let problem = format!(
            "{place} is {value}: --set logit_softcap={value} sets it, once it is set to null there"
        );
        return Err(facts.at(PROBE, problem));
    }
    Ok(true)
}
