//! OLMo-core: `blocks.0.attention.w_q.weight`, with the `config.json` of its trainer.

use attnscope_compute::error::Result;
use serde_json::Value;

use super::parts::Parts;
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "OLMo-core (blocks.0.attention.w_q.weight)",
    describe,
};

const PROBE: &str = "blocks.0.attention.w_q.weight";
const TOKENS: &str = "embeddings.weight";

const PARTS: &[&str] = &[
    "attention.w_q.weight",
    "attention.w_q.bias",
    "attention.w_k.weight",
    "attention.w_k.bias",
    "attention.w_v.weight",
    "attention.w_v.bias",
    "attention.w_out.weight",
    "attention.w_out.bias",
    "attention.q_norm.weight",
    "attention.q_norm.bias",
    "attention.k_norm.weight",
    "attention.k_norm.bias",
    "attention_norm.weight",
    "attention_norm.bias",
    "feed_forward_norm.weight",
    "feed_forward_norm.bias",
    "post_attention_norm.weight",
    "post_attention_norm.bias",
    "post_feed_forward_norm.weight",
    "post_feed_forward_norm.bias",
    "feed_forward.w1.weight",
    "feed_forward.w1.bias",
    "feed_forward.w2.weight",
    "feed_forward.w2.bias",
    "feed_forward.w3.weight",
    "feed_forward.w3.bias",
];

/// Where OLMo-core's trainer stores its configuration.
const CONFIG: &str = "config.json";
/// Keys that describe attention: in versions up to 2, and since.
const MIXERS: [&str; 2] = ["attention", "sequence_mixer"];

/// Attention switches that this layout does not support.
const OFF: [&str; 6] = [
    "sliding_window",
    "gate",
    "clip_qkv",
    "softmax_scale",
    "scalable_softmax",
    "attention_sinks",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    if !facts.has(PROBE) || !facts.has(TOKENS) {
        return Ok(false);
    }
    let model = facts
        .plain_values
        .get(CONFIG)
        .and_then(|all| all.get("model"));
    let block = model.and_then(|model| model.get("block"));
    let mixer = MIXERS.iter().find_map(|key| block?.get(key));
    let of_block = |keys: &[&str]| -> Option<Value> {
        let mut value = block?;
        for key in keys {
            value = value.get(key)?;
        }
        Some(value.clone()).filter(|value| !value.is_null())
    };
    let of_mixer = |key: &str| {
        let value = mixer?.get(key)?.clone();
        Some(value).filter(|value| !value.is_null() && *value != Value::Bool(false))
    };
    for key in OFF {
        if let Some(value) = of_mixer(key) {
            let problem = format!("{CONFIG} {key} is {value}, which is not read in this layout");
            return Err(facts.at(PROBE, problem));
        }
    }
    let rope = of_mixer("rope");
    let of_rope = |key: &str| {
        rope.as_ref()?
            .get(key)
            .filter(|value| !value.is_null())
            .cloned()
    };
    if let Some(scaling) = of_rope("scaling") {
        let problem = format!("{CONFIG} scales rotary positions: {scaling}, which is not read");
        return Err(facts.at(PROBE, problem));
    }
    if of_rope("no_global_rope") == Some(Value::Bool(true)) {
        let problem = format!("{CONFIG} rotates in layers with a window alone, which is not read");
        return Err(facts.at(PROBE, problem));
    }
    let share = of_rope("partial_rotary_factor").and_then(|share| share.as_f64());
    let (n_heads, theta) = (of_mixer("n_heads"), of_rope("theta"));
    let eps = of_block(&["layer_norm", "eps"]);
    let name = of_block(&["name"]);
    let norm_kind = of_block(&["layer_norm", "name"]);
    let is_overridden = model
        .and_then(|model| model.get("block_overrides"))
        .is_some_and(|value| !value.is_null());
    if is_overridden {
        let problem = format!("{CONFIG} gives some blocks other settings, which is not read");
        return Err(facts.at(PROBE, problem));
    }

    let [d_vocab, _] = facts.matrix(TOKENS)?;
    facts.layers("n_layers", "blocks.", "attention.w_q.weight", PARTS)?;
    facts.by_names("model_type", "described");
    facts.by_shape("d_vocab", d_vocab, TOKENS, &[])?;
    let said = |facts: &mut Facts<'_>, field: &'static str, value: Option<Value>| match value {
        Some(value) => facts.config.put(field, value, super::stated_in(CONFIG)),
        None => facts.needed(field, field, &[]),
    };
    said(facts, "n_heads", n_heads);
    heads(facts)?;

    let mut parts = Parts::of_layers("blocks.");
    parts.put("tokens", TOKENS);
    for (key, map) in [
        ("q", "attention.w_q"),
        ("k", "attention.w_k"),
        ("v", "attention.w_v"),
        ("o", "attention.w_out"),
        ("gate", "feed_forward.w1"),
        ("down", "feed_forward.w2"),
        ("up", "feed_forward.w3"),
    ] {
        parts.map(facts, key, map);
    }
    // The names are the same for pre-norm and post-norm.
    let has_both = parts.has(facts, "post_attention_norm.weight");
    let is_first = match name.as_ref().and_then(Value::as_str) {
        Some("default" | "peri_norm") => Some(true),
        Some("reordered_norm") => Some(false),
        Some(other) => {
            let problem = format!("{CONFIG} has blocks of kind {other}, which is not read");
            return Err(facts.at(PROBE, problem));
        }
        None if has_both => Some(true),
        None => facts.overrides.flag("norm_first"),
    };
    if is_first.is_none() {
        facts.missing.push("norm_first");
    }
    let places = if is_first == Some(false) {
        ["attn_out", "mlp_out"]
    } else {
        ["attn_pre", "mlp_pre"]
    };
    let mut norm = |place: &str, base: &str| {
        let (gain, bias) = (format!("{base}.weight"), format!("{base}.bias"));
        parts.norm(facts, place, &gain, &bias);
    };
    norm(places[0], "attention_norm");
    norm(places[1], "feed_forward_norm");
    norm("attn_out", "post_attention_norm");
    norm("mlp_out", "post_feed_forward_norm");
    norm("q_norm", "attention.q_norm");
    norm("k_norm", "attention.k_norm");
    let around = [("final_norm", "lm_head.norm"), ("unembed", "lm_head.w_out")];
    for (key, base) in around {
        parts.around(
            facts,
            key,
            &format!("{base}.weight"),
            &format!("{base}.bias"),
        );
    }
    facts.by_names("tensors", parts.into_tensors());
    match norm_kind.as_ref().and_then(Value::as_str) {
        None | Some("rms" | "fused_rms" | "cute_rms" | "qwen_rms") => facts.by_names("norm", "rms"),
        Some("default") => facts.by_names("norm", "layer"),
        Some(other) => {
            let problem = format!("{CONFIG} has norms of kind {other}, which is not read");
            return Err(facts.at(PROBE, problem));
        }
    }
    let word = of_block(&["feed_forward", "activation"]);
    match word.as_ref().and_then(Value::as_str) {
        None => facts.by_names("activation", "silu"),
        Some("gelu_tanh") => facts.by_names("activation", "gelu_new"),
        Some(word) => facts
            .config
            .put("activation", word, super::stated_in(CONFIG)),
    }
    facts.by_names("positions", "rotary");
    if let (Some(share), Some(d_head)) = (share, facts.size("d_head", "d_head"))
        && share < 1.0
    {
        facts.by_names("d_rotary", (share * d_head as f64) as usize);
    }
    said(facts, "rope_theta", theta);
    said(facts, "norm_eps", eps);
    Ok(true)
}

fn heads(facts: &mut Facts<'_>) -> Result<()> {
    const KEYS: &str = "blocks.0.attention.w_k.weight";
    let ([d_q, _], [d_k, _]) = (facts.matrix(PROBE)?, facts.matrix(KEYS)?);
    let Some(n_heads) = facts.size("n_heads", "n_heads") else {
        return Ok(());
    };
    let d_head = d_q / n_heads;
    if d_head == 0 || !d_q.is_multiple_of(n_heads) || !d_k.is_multiple_of(d_head) {
        let problem =
            format!("{n_heads} heads do not fit the {d_q} rows of queries and {d_k} of keys");
        return Err(facts.at(PROBE, problem));
    }
    facts.by_shape("d_head", d_head, PROBE, &[])?;
    facts.by_shape("n_kv_heads", d_k / d_head, KEYS, &[])
}
