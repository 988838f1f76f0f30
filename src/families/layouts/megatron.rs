//! Megatron-core: `decoder.layers.0.self_attention.linear_qkv.weight`, with the training arguments in the same file.

use attnscope_compute::error::Result;
use serde_json::Value;

use super::parts::Parts;
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "Megatron-core (decoder.layers.0.self_attention.linear_qkv.weight)",
    describe,
};

const LAYERS: &str = "decoder.layers.";
const PROBE: &str = "decoder.layers.0.self_attention.linear_qkv.weight";
const TOKENS: &str = "embedding.word_embeddings.weight";
const POSITIONS: &str = "embedding.position_embeddings.weight";

/// The norms of a layer: Megatron's module name, then Transformer Engine's, which stores a norm in the linear map after it.
const NORMS: [(&str, [&str; 2]); 2] = [
    (
        "attn_pre",
        ["input_layernorm.", "self_attention.linear_qkv.layer_norm_"],
    ),
    (
        "mlp_pre",
        ["pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"],
    ),
];

const PARTS: &[&str] = &[
    "input_layernorm.weight",
    "input_layernorm.bias",
    "self_attention.linear_qkv.layer_norm_weight",
    "self_attention.linear_qkv.layer_norm_bias",
    "self_attention.linear_qkv.weight",
    "self_attention.linear_qkv.bias",
    "self_attention.linear_proj.weight",
    "self_attention.linear_proj.bias",
    "self_attention.q_layernorm.weight",
    "self_attention.q_layernorm.bias",
    "self_attention.k_layernorm.weight",
    "self_attention.k_layernorm.bias",
    "pre_mlp_layernorm.weight",
    "pre_mlp_layernorm.bias",
    "mlp.linear_fc1.layer_norm_weight",
    "mlp.linear_fc1.layer_norm_bias",
    "mlp.linear_fc1.weight",
    "mlp.linear_fc1.bias",
    "mlp.linear_fc2.weight",
    "mlp.linear_fc2.bias",
];

/// Transformer Engine's own state, stored beside the weights.
const EXTRA: &str = "_extra_state";

/// Arguments that change the computation in ways this layout does not support.
const OFF: [&str; 13] = [
    "multi_latent_attention",
    "num_experts",
    "window_size",
    "use_rope_scaling",
    "rotary_seq_len_interpolation_factor",
    "apply_residual_connection_post_layernorm",
    "mtp_num_layers",
    "no_rope_freq",
    "attention_output_gate",
    "hybrid_override_pattern",
    "heterogeneous_layers_config_path",
    "qk_clip",
    "activation_func_clamp_value",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    if !facts.has(PROBE) || !facts.has(TOKENS) {
        return Ok(false);
    }
    let states: Vec<String> = facts
        .tensors
        .iter()
        .filter(|(name, _)| name.ends_with(EXTRA) || name.contains(".inv_freq"))
        .map(|(name, _)| name.to_owned())
        .collect();
    states.iter().for_each(|name| facts.tensors.forget(name));
    refuse(facts)?;

    let [d_vocab, _] = facts.matrix(TOKENS)?;
    facts.layers(
        "n_layers",
        LAYERS,
        "self_attention.linear_qkv.weight",
        PARTS,
    )?;
    facts.by_names("model_type", "described");
    facts.by_shape("d_vocab", d_vocab, TOKENS, &[])?;
    heads(facts)?;

    let mut parts = Parts::of_layers(LAYERS);
    parts.put("tokens", TOKENS);
    let order = [("order", "q k v"), ("per", "head")];
    parts.fused(facts, "qkv", "self_attention.linear_qkv", &order);
    parts.map(facts, "o", "self_attention.linear_proj");
    let is_gated = {
        let of = |map: &str| facts.matrix(&format!("{LAYERS}0.mlp.{map}.weight"));
        let ([d_up, _], [_, d_mlp]) = (of("linear_fc1")?, of("linear_fc2")?);
        d_up == 2 * d_mlp
    };
    if is_gated {
        parts.fused(facts, "gate_up", "mlp.linear_fc1", &[("order", "gate up")]);
    } else {
        parts.map(facts, "up", "mlp.linear_fc1");
    }
    parts.map(facts, "down", "mlp.linear_fc2");
    let mut has_bias = false;
    for (place, names) in NORMS {
        for name in names {
            let (gain, bias) = (format!("{name}weight"), format!("{name}bias"));
            parts.norm(facts, place, &gain, &bias);
            has_bias |= parts.has(facts, &bias);
        }
    }
    for (key, norm) in [("q_norm", "q_layernorm"), ("k_norm", "k_layernorm")] {
        let of = |end: &str| format!("self_attention.{norm}.{end}");
        parts.norm(facts, key, &of("weight"), &of("bias"));
    }
    for name in ["final_layernorm", "final_norm"] {
        let of = |end: &str| format!("decoder.{name}.{end}");
        parts.around(facts, "final_norm", &of("weight"), &of("bias"));
    }
    parts.around(facts, "unembed", "output_layer.weight", "output_layer.bias");
    if facts.has(POSITIONS) {
        parts.put("positions", POSITIONS);
    }
    facts.by_names("tensors", parts.into_tensors());

    let is_rms = facts
        .argument("normalization")
        .map_or(!has_bias, |kind| kind == "RMSNorm");
    facts.by_names("norm", if is_rms { "rms" } else { "layer" });
    if facts.is_argument("apply_layernorm_1p") {
        facts.by_names("norm_adds_one", true);
    }
    facts.by_argument("norm_eps", &["norm_epsilon", "layernorm_epsilon"]);
    match activation(facts) {
        Some(word) => facts.by_names("activation", word),
        None => facts.needed("activation", "activation", &[]),
    }
    positions(facts)?;
    Ok(true)
}

/// Refuses training arguments that this layout does not support.
fn refuse(facts: &Facts<'_>) -> Result<()> {
    let is_off = |value: &Value| {
        value.is_null() || *value == Value::Bool(false) || value.as_f64() == Some(0.0)
    };
    if let Some((key, value)) = OFF
        .iter()
        .filter_map(|key| Some((key, facts.argument(key)?)))
        .find(|(_, value)| !is_off(value))
    {
        let problem = format!(
            "args {key} is {value}, which is not read in this layout; convert the checkpoint to Hugging Face's layout \
             with Megatron's tools/checkpoint/convert.py"
        );
        return Err(facts.at(PROBE, problem));
    }
    for key in ["tensor_model_parallel_size", "pipeline_model_parallel_size"] {
        let n = facts.argument(key).and_then(Value::as_u64);
        if let Some(n) = n.filter(|n| *n > 1) {
            let problem = format!(
                "args {key} is {n}: this file holds one part of the model; open the directory of the step, which has all of \
                 them (mp_rank_00, mp_rank_01, …)"
            );
            return Err(facts.at(PROBE, problem));
        }
    }
    Ok(())
}

fn heads(facts: &mut Facts<'_>) -> Result<()> {
    const OUT: &str = "decoder.layers.0.self_attention.linear_proj.weight";
    let ([n_rows, _], [_, d_q]) = (facts.matrix(PROBE)?, facts.matrix(OUT)?);
    if !facts.by_argument("n_heads", &["num_attention_heads"]) {
        facts.needed("n_heads", "n_heads", &[]);
    }
    let Some(n_heads) = facts.size("n_heads", "n_heads") else {
        return Ok(());
    };
    let d_head = d_q / n_heads;
    let d_kv = n_rows.saturating_sub(d_q) / 2;
    if d_head == 0 || !d_q.is_multiple_of(n_heads) || d_kv == 0 || !d_kv.is_multiple_of(d_head) {
        let problem = format!(
            "{n_heads} heads do not fit {n_rows} rows of queries, keys and values, {d_q} of which are queries"
        );
        return Err(facts.at(PROBE, problem));
    }
    facts.by_shape("d_head", d_head, OUT, &[])?;
    facts.by_shape("n_kv_heads", d_kv / d_head, PROBE, &[])
}

/// The activation that the arguments state; `None` without arguments.
fn activation(facts: &Facts<'_>) -> Option<&'static str> {
    facts.argument("num_attention_heads")?;
    let is = |key: &str| facts.is_argument(key);
    Some(if is("swiglu") {
        "silu"
    } else if is("squared_relu") {
        "relu2"
    } else if is("openai_gelu") || is("bias_gelu_fusion") {
        // The fused kernel computes the tanh form of GELU.
        "gelu_new"
    } else {
        "gelu"
    })
}

fn positions(facts: &mut Facts<'_>) -> Result<()> {
    if facts.has(POSITIONS) {
        return Ok(());
    }
    let kind = facts.argument("position_embedding_type");
    match kind.and_then(Value::as_str).map(str::to_owned).as_deref() {
        Some("rope") => {
            facts.by_names("positions", "rotary");
            facts.by_argument("rope_theta", &["rotary_base"]);
            if facts.is_argument("rotary_interleaved") {
                facts.by_names("rope_interleaved", true);
            }
            let share = facts.argument("rotary_percent").and_then(Value::as_f64);
            if let (Some(share), Some(d_head)) = (
                share.filter(|share| *share < 1.0),
                facts.size("d_head", "d_head"),
            ) {
                facts.by_names("d_rotary", (share * d_head as f64) as usize);
            }
        }
        Some("none") => {}
        Some(other) => {
            let problem = format!("args position_embedding_type is {other}, which is not read");
            return Err(facts.at(PROBE, problem));
        }
        None => {
            facts.needed("positions", "positions", &[]);
            if facts.overrides.word("positions") == Some("rotary") {
                facts.needed("rope_theta", "rope_theta", &[]);
            }
        }
    }
    Ok(())
}
