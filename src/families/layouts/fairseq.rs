//! fairseq: `decoder.layers.0.self_attn.q_proj.weight` of a language model or a translator, with `args` or `cfg` in the same file.

use std::collections::BTreeSet;

use attnscope_compute::error::Result;
use serde_json::Value;

use super::super::fairseq::{LEARNED, N_ROWS_BEFORE, NORMS_BEFORE, NORMS_EMBEDDING};
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "fairseq (decoder.layers.0.encoder_attn_layer_norm.weight, or args with decoder.layers.0.fc1.weight)",
    describe,
};

const TOKENS: &str = "decoder.embed_tokens.weight";
const PROBE: &str = "decoder.layers.0.fc1.weight";
const HEAD: &str = "decoder.output_projection.weight";

/// Entries stored beside the weights that are not weights.
const STATES: [&str; 3] = [".version", "._float_tensor", ".pos_emb"];

const MAPS: [&str; 4] = ["q_proj", "k_proj", "v_proj", "out_proj"];
/// Queries, keys and values in one tensor, as old versions store them.
const FUSED: [&str; 2] = ["_attn.in_proj_weight", "_attn.in_proj_bias"];
/// Copies of weights that encoder layers keep for a fast path of PyTorch, in versions from 0.12.
const COPIES: [&str; 8] = [
    "in_proj_weight",
    "in_proj_bias",
    "out_proj_weight",
    "out_proj_bias",
    "fc1_weight",
    "fc1_bias",
    "fc2_weight",
    "fc2_bias",
];

const REASON: &str =
    "fairseq's dictionary names tokens, and not how a text is cut into them; ids go on";

/// Arguments that change the computation in ways this layout does not support.
const OFF: [&str; 10] = [
    "no_token_positional_embeddings",
    "no_decoder_final_norm",
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "cross_self_attention",
    "no_cross_attention",
    "character_embeddings",
    "use_alibi",
    "moe_freq",
    "scale_fc",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let is_translator = facts.has("encoder.layers.0.fc1.weight");
    let is_its = facts.has(PROBE)
        && facts.has(TOKENS)
        && (facts.has("decoder.layers.0.self_attn.out_proj.weight"))
        && (facts.has("decoder.layers.0.encoder_attn_layer_norm.weight")
            || said(facts, "arch").is_some()
            || said(facts, "_name").is_some());
    if !is_its {
        return Ok(false);
    }
    let states: Vec<String> = facts
        .tensors
        .iter()
        .filter(|(name, _)| STATES.iter().any(|end| name.ends_with(end)) || is_copy(name))
        .map(|(name, _)| name.to_owned())
        .collect();
    states.iter().for_each(|name| facts.tensors.forget(name));
    if said(facts, "decoder_attention_heads").is_none() {
        let problem = "fairseq keeps the number of heads, positions and more under args or cfg, which this file has not; \
                       expected the checkpoint as fairseq-train writes it";
        return Err(facts.at(PROBE, problem.to_owned()));
    }
    refuse(facts)?;
    split(facts)?;

    facts.by_names("model_type", "fairseq");
    let [d_vocab, d_model] = facts.matrix(TOKENS)?;
    facts.by_shape("d_model", d_model, TOKENS, &[])?;
    let sides: &[&str] = if is_translator {
        &["encoder", "decoder"]
    } else {
        &["decoder"]
    };
    let mut parts = parts_of(&["self_attn"]);
    let decoder_parts = parts_of(&["self_attn", "encoder_attn"]);
    for side in sides {
        if *side == "decoder" && is_translator {
            parts.clone_from(&decoder_parts);
        }
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        let before = format!("{side}.layers.");
        facts.layers(&format!("{side}_layers"), &before, "fc1.weight", &names)?;
        let up = format!("{side}.layers.0.fc1.weight");
        let [d_mlp, _] = facts.matrix(&up)?;
        facts.by_shape(&format!("{side}_ffn_dim"), d_mlp, &up, &[])?;
        let heads = format!("{side}_attention_heads");
        note(facts, &heads, &heads);
    }
    outside(facts)?;
    let of_both = |facts: &Facts<'_>, key: &str| -> Result<bool> {
        let on = |side: &str| is_on(facts, &format!("{side}_{key}"));
        let values: BTreeSet<bool> = sides.iter().map(|side| on(side)).collect();
        if values.len() > 1 {
            let problem =
                format!("args {key} differs between encoder and decoder, which is not read");
            return Err(facts.at(PROBE, problem));
        }
        Ok(values.contains(&true))
    };
    let is_learned = of_both(facts, "learned_pos")?;
    facts.by_names(LEARNED, is_learned);
    if is_translator {
        let norms_before = of_both(facts, "normalize_before")?;
        facts.by_names(NORMS_BEFORE, norms_before);
        facts.by_names(NORMS_EMBEDDING, is_on(facts, "layernorm_embedding"));
        const SOURCE: &str = "encoder.embed_tokens.weight";
        let [d_source, _] = facts.matrix(SOURCE)?;
        let shares = is_on(facts, "share_all_embeddings");
        facts.by_shape("vocab_size", d_source, SOURCE, &[])?;
        facts.by_names("share_all_embeddings", shares);
        facts.by_shape("decoder_vocab_size", d_vocab, TOKENS, &[])?;
        // A target begins with the end-of-text token.
        facts.by_names("decoder_start_token_id", 2);
        facts.by_names("eos_token_id", 2);
    } else {
        facts.by_shape("vocab_size", d_vocab, TOKENS, &[])?;
    }
    facts.by_names("pad_token_id", 1);
    facts.by_names("scale_embedding", !is_on(facts, "no_scale_embedding"));
    let activation = said(facts, "activation_fn").and_then(Value::as_str);
    let word = match activation.unwrap_or("relu") {
        "gelu_fast" | "gelu_accurate" => "gelu_new",
        "swish" => "silu",
        other => other,
    };
    facts.by_names("activation_function", word.to_owned());
    context(facts, is_learned)?;
    let is_stored = facts.has(HEAD);
    facts.by_names("tie_word_embeddings", !is_stored);
    if !is_stored && is_translator {
        let problem = "missing: the head of a translator".to_owned();
        return Err(facts.at(HEAD, problem));
    }
    facts
        .tensors
        .rename(|name| (name == HEAD).then(|| "lm_head.weight".to_owned()))?;
    facts.no_text = Some(REASON);
    Ok(true)
}

/// Whether a tensor is one of the copies that an encoder layer keeps.
fn is_copy(name: &str) -> bool {
    let layer = name.strip_prefix("encoder.layers.");
    let part = layer.and_then(|layer| layer.split_once('.'));
    part.is_some_and(|(_, part)| COPIES.contains(&part))
}

/// Returns a training argument: from `args` in old versions, from `cfg` in newer ones.
fn said<'a>(facts: &Facts<'a>, key: &str) -> Option<&'a Value> {
    let (args, cfg) = (
        facts.plain_values.get("args"),
        facts.plain_values.get("cfg"),
    );
    let found = args
        .and_then(|args| args.get(key))
        .or_else(|| cfg?.get("model")?.get(key));
    found.filter(|value| !value.is_null())
}

fn is_on(facts: &Facts<'_>, key: &str) -> bool {
    said(facts, key) == Some(&Value::Bool(true))
}

fn note(facts: &mut Facts<'_>, key: &str, argument: &str) {
    if let Some(value) = said(facts, argument).cloned() {
        facts.config.put(key, value, super::stated_in("args"));
    }
}

/// Refuses training arguments that this layout does not support.
fn refuse(facts: &Facts<'_>) -> Result<()> {
    let is_off = |value: &Value| {
        *value == Value::Bool(false) || value.as_f64() == Some(0.0) || value.as_str() == Some("")
    };
    for key in OFF {
        if let Some(value) = said(facts, key).filter(|value| !is_off(value)) {
            let problem = format!("args {key} is {value}, which is not read in this layout");
            return Err(facts.at(PROBE, problem));
        }
    }
    Ok(())
}

/// Splits the fused tensors of old versions into queries, keys and values.
fn split(facts: &mut Facts<'_>) -> Result<()> {
    let fused: Vec<String> = facts
        .tensors
        .iter()
        .filter(|(name, _)| FUSED.iter().any(|end| name.ends_with(end)))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in fused {
        let n_rows = facts.shape(&name).and_then(|shape| shape.first().copied());
        let (base, end) = name.rsplit_once("in_proj_").unwrap_or((&name, ""));
        let third = n_rows.filter(|n| n.is_multiple_of(3)).map(|n| n / 3);
        for (idx, map) in MAPS.iter().take(3).enumerate() {
            let new_name = format!("{base}{map}.{end}");
            let is_cut = third.is_some_and(|n| {
                facts
                    .tensors
                    .cut_rows(&name, &new_name, idx * n..(idx + 1) * n)
            });
            if !is_cut {
                let problem = "expected rows of queries, keys and values, as many of each";
                return Err(facts.at(&name, problem.to_owned()));
            }
        }
        facts.tensors.forget(&name);
    }
    Ok(())
}

/// Names of a layer's tensors, given the names of its attentions.
fn parts_of(attentions: &[&str]) -> Vec<String> {
    let mut bases: Vec<String> = ["fc1", "fc2", "final_layer_norm"].map(str::to_owned).into();
    for attention in attentions {
        bases.extend(MAPS.iter().map(|map| format!("{attention}.{map}")));
        bases.push(format!("{attention}_layer_norm"));
    }
    let both = |base: &String| [format!("{base}.weight"), format!("{base}.bias")];
    bases.iter().flat_map(both).collect()
}

/// Refuses tensors outside the layers that this layout does not know.
fn outside(facts: &Facts<'_>) -> Result<()> {
    const KNOWN: [&str; 6] = [
        "embed_tokens.weight",
        "embed_positions.weight",
        "layernorm_embedding.weight",
        "layernorm_embedding.bias",
        "layer_norm.weight",
        "layer_norm.bias",
    ];
    let is_known = |name: &str| {
        ["encoder.", "decoder."].iter().any(|side| {
            name.strip_prefix(side)
                .is_some_and(|part| part.starts_with("layers.") || KNOWN.contains(&part))
        }) || name == HEAD
    };
    match facts.tensors.iter().find(|(name, _)| !is_known(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let problem = "is no part of fairseq's transformer that is read".to_owned();
            Err(facts.at(name, problem))
        }
    }
}

/// Reads the number of positions: rows of the table, or what the arguments state.
fn context(facts: &mut Facts<'_>, is_learned: bool) -> Result<()> {
    const TABLE: &str = "decoder.embed_positions.weight";
    const KEY: &str = "max_position_embeddings";
    if is_learned {
        let [n_rows, _] = facts.matrix(TABLE)?;
        return facts.by_shape(KEY, n_rows.saturating_sub(N_ROWS_BEFORE), TABLE, &[]);
    }
    let stated = ["max_target_positions", "tokens_per_sample"]
        .iter()
        .find_map(|key| said(facts, key)?.as_u64());
    facts.by_names(KEY, stated.unwrap_or(1024));
    Ok(())
}
