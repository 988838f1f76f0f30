//! Hybrid models, with attention in some layers and other token mixers in the rest: reads which is where, and the mixers' sizes.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::facts::{Facts, KV_HEADS, set};
use super::value::Value as Stored;
use crate::config::Config;

/// Returns which layers have attention, i.e. key/value heads.
fn attending(facts: &Facts<'_>) -> Result<Vec<bool>> {
    let n_layers = facts.sizes.n_layers as usize;
    let Some(heads) = facts.wholes(KV_HEADS)? else {
        return Ok(vec![true; n_layers]);
    };
    let n_kv_heads = facts.sizes.n_kv_heads;
    let is_odd = heads.iter().any(|n| ![0, n_kv_heads].contains(n));
    if heads.len() < n_layers || is_odd {
        let problem = format!("expected 0 or {n_kv_heads} for each layer, found {heads:?}");
        return facts.refuse(KV_HEADS, problem);
    }
    Ok(heads.iter().take(n_layers).map(|n| *n > 0).collect())
}

/// Returns the layer types of layers with and without attention.
fn words(attends: &[bool]) -> Vec<&'static str> {
    let word = |attends: &bool| {
        if *attends {
            "full_attention"
        } else {
            "linear_attention"
        }
    };
    attends.iter().map(word).collect()
}

/// Finds the period and the offset of the chosen layers; `None` if they are not evenly spaced.
fn period_of(chosen: &[bool]) -> Option<(usize, usize)> {
    let mut all = (0..chosen.len()).filter(|idx| chosen[*idx]);
    let Some(first) = all.next() else {
        // No layer is chosen: return a period longer than the model.
        return Some((chosen.len() + 1, chosen.len()));
    };
    let period = all.next().map_or(chosen.len(), |second| second - first);
    let is_regular = (0..chosen.len()).all(|idx| chosen[idx] == (idx % period == first));
    is_regular.then_some((period, first))
}

/// Computes the mixer's width as a multiple of the hidden size.
fn expansion(facts: &Facts<'_>) -> Result<u64> {
    const INNER: &str = "ssm.inner_size";
    let (inner, d_model) = (facts.size(INNER)?, facts.sizes.d_model);
    if !inner.is_multiple_of(d_model) {
        let problem = format!("expected a multiple of {d_model}, found {inner}");
        return facts.refuse(INNER, problem);
    }
    Ok(inner / d_model)
}

/// Sets keys of the configuration to sizes that must be present.
fn mamba_sizes(
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
    keys: &[(&str, &str)],
) -> Result<()> {
    for (key, tail) in keys {
        set(config, key, facts.size(tail)?);
    }
    Ok(())
}

/// Sets the keys of Mamba-2 that begin with `mamba_`.
fn state_space(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    mamba_sizes(
        facts,
        config,
        &[
            ("mamba_d_conv", "ssm.conv_kernel"),
            ("mamba_d_state", "ssm.state_size"),
            ("mamba_n_groups", "ssm.group_count"),
            ("mamba_n_heads", "ssm.time_step_rank"),
        ],
    )?;
    biases_of_mixer(facts, config);
    Ok(())
}

fn biases_of_mixer(facts: &Facts<'_>, config: &mut Map<String, Value>) {
    for (key, ending) in [
        ("mamba_conv_bias", "mamba.conv1d.bias"),
        ("mamba_proj_bias", "mamba.in_proj.bias"),
    ] {
        set(config, key, facts.has_any(ending));
    }
}

/// Jamba: attention layers and expert layers are each evenly spaced.
pub(super) fn jamba(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let router = |idx: u64| facts.has(&format!("model.layers.{idx}.feed_forward.router.weight"));
    let sparse: Vec<bool> = (0..facts.sizes.n_layers).map(router).collect();
    for (which, chosen, tail) in [
        ("attn", attending(facts)?, KV_HEADS),
        ("expert", sparse, "expert_count"),
    ] {
        let Some((period, offset)) = period_of(&chosen) else {
            let problem = format!("expected layers in equal distances, found {chosen:?}");
            return facts.refuse(tail, problem);
        };
        set(config, &format!("{which}_layer_period"), period);
        set(config, &format!("{which}_layer_offset"), offset);
    }
    set(config, "mamba_expand", expansion(facts)?);
    mamba_sizes(
        facts,
        config,
        &[
            ("mamba_d_conv", "ssm.conv_kernel"),
            ("mamba_d_state", "ssm.state_size"),
            ("mamba_dt_rank", "ssm.time_step_rank"),
        ],
    )?;
    biases_of_mixer(facts, config);
    Ok(())
}

/// Bamba, which lists its attention layers by number.
pub(super) fn bamba(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let attends = attending(facts)?;
    let listed: Vec<usize> = (0..attends.len()).filter(|idx| attends[*idx]).collect();
    set(config, "attn_layer_indices", listed);
    set(config, "mamba_expand", expansion(facts)?);
    state_space(facts, config)?;
    rotates(facts).map(|_| ())
}

/// Whether attention layers rotate queries and keys: the converter stores this as `rope.scaling.finetuned`.
fn rotates(facts: &Facts<'_>) -> Result<bool> {
    Ok(facts.flag("rope.scaling.finetuned")?.unwrap_or(true))
}

/// Granite 4, and Granite 3 with experts and a shared expert.
pub(super) fn granite(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let attends = attending(facts)?;
    set(config, "layer_types", words(&attends));
    let positions = if rotates(facts)? { "rope" } else { "nope" };
    set(config, "position_embedding_type", positions);
    if positions == "nope" {
        config.remove("rope_theta");
    }
    let shared = facts.whole("expert_shared_feed_forward_length")?;
    let n_experts = facts.whole("expert_count")?.unwrap_or(0);
    let d_shared = if n_experts > 0 { shared } else { None };
    let d_mlp = config.get("intermediate_size").cloned();
    let d_shared = d_shared.map_or(d_mlp.unwrap_or_default(), |width| json!(width));
    set(config, "shared_intermediate_size", d_shared);
    if n_experts > 0 {
        // Width of an expert; the shared expert's width has its own key.
        let stated = facts.whole("expert_feed_forward_length")?;
        let width = stated.or(facts.whole("feed_forward_length")?);
        set(config, "intermediate_size", width);
    } else {
        set(config, "num_local_experts", 0);
    }
    if attends.contains(&false) {
        set(config, "mamba_expand", expansion(facts)?);
        state_space(facts, config)?;
    } else {
        // The family requires sizes of a mixer, although no layer has one.
        set(config, "mamba_n_heads", 1);
        set(config, "mamba_expand", 1);
    }
    Ok(())
}

/// Whether the configuration of a Falcon-H1 has norms in its mixers.
pub(super) fn has_norm(config: &Config) -> bool {
    config.get("mamba_rms_norm").and_then(Value::as_bool) == Some(true)
}

/// Falcon-H1, whose multipliers the converter has folded into the weights.
pub(super) fn falcon_h1(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "mamba_d_ssm", facts.size("ssm.inner_size")?);
    state_space(facts, config)
}

/// Nemotron-H: the type of a layer follows from its tensors.
pub(super) fn nemotron_h(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    attending(facts)?;
    facts.metadata.get(&facts.key("rope.dimension_count"));
    rotates(facts)?;
    facts.whole("expert_shared_count")?;
    let mut types = Vec::new();
    for layer_idx in 0..facts.sizes.n_layers {
        let at = format!("backbone.layers.{layer_idx}.mixer");
        let kinds = [
            ("q_proj.weight", "full_attention"),
            ("in_proj.weight", "linear_attention"),
            ("gate.weight", "moe"),
            ("up_proj.weight", "mlp"),
        ];
        let found = kinds
            .iter()
            .find(|(probe, _)| facts.has(&format!("{at}.{probe}")));
        let Some((_, kind)) = found else {
            let problem = format!("layer {layer_idx} has tensors of no known kind of layer");
            return facts.refuse("block_count", problem);
        };
        types.push(*kind);
    }
    let dense = types.iter().position(|kind| *kind == "mlp");
    let width = dense.and_then(|idx| {
        let name = format!("backbone.layers.{idx}.mixer.up_proj.weight");
        facts.rows(&name)
    });
    match width {
        Some(width) => set(config, "intermediate_size", width),
        None => {
            config.remove("intermediate_size");
        }
    }
    if types.contains(&"linear_attention") {
        let n_heads = facts.size("ssm.time_step_rank")?;
        let inner = facts.size("ssm.inner_size")?;
        if !inner.is_multiple_of(n_heads) {
            let problem = format!("expected a multiple of the {n_heads} heads, found {inner}");
            return facts.refuse("ssm.inner_size", problem);
        }
        set(config, "mamba_num_heads", n_heads);
        set(config, "mamba_head_dim", inner / n_heads);
        for (tail, key) in [
            ("ssm.conv_kernel", "conv_kernel"),
            ("ssm.state_size", "ssm_state_size"),
            ("ssm.group_count", "n_groups"),
        ] {
            set(config, key, facts.size(tail)?);
        }
    }
    set(config, "layers_block_type", types);
    // llama.cpp does not clamp time steps.
    set(config, "time_step_min", 0.0);
    if let Some(divides) = facts.flag("expert_weights_norm")? {
        set(config, "norm_topk_prob", divides);
    }
    Ok(())
}

/// Qwen3-Next: layers with the delta rule, and layers with attention.
pub(super) fn qwen3_next(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const LISTED: &str = "attention.recurrent_layers";
    let n_layers = facts.sizes.n_layers as usize;
    let attends = match facts.metadata.get(&facts.key(LISTED)) {
        Some(Stored::List(list)) => {
            let mixes = |value: Stored| match value {
                Stored::Bool(mixes) => Some(!mixes),
                _ => None,
            };
            let all = facts.metadata.elements(list)?;
            let all: Option<Vec<bool>> = all.into_iter().map(mixes).collect();
            match all.filter(|all| all.len() >= n_layers) {
                Some(all) => all[..n_layers].to_vec(),
                None => {
                    let problem = format!("expected one truth value for each of {n_layers} layers");
                    return facts.refuse(LISTED, problem);
                }
            }
        }
        _ => {
            let every = facts.whole("full_attention_interval")?.unwrap_or(4).max(1) as usize;
            (1..=n_layers)
                .map(|nth| nth.is_multiple_of(every))
                .collect()
        }
    };
    facts.metadata.get(&facts.key("full_attention_interval"));
    set(config, "layer_types", words(&attends));
    let n_values = facts.size("ssm.time_step_rank")?;
    let inner = facts.size("ssm.inner_size")?;
    if !inner.is_multiple_of(n_values) {
        let problem =
            format!("expected a multiple of the {n_values} heads of values, found {inner}");
        return facts.refuse("ssm.inner_size", problem);
    }
    for (key, size) in [
        ("linear_num_value_heads", n_values),
        ("linear_value_head_dim", inner / n_values),
        ("linear_num_key_heads", facts.size("ssm.group_count")?),
        ("linear_key_head_dim", facts.size("ssm.state_size")?),
        ("linear_conv_kernel_dim", facts.size("ssm.conv_kernel")?),
    ] {
        set(config, key, size);
    }
    let is_dense = |idx: &u64| !facts.has(&format!("model.layers.{idx}.mlp.gate.weight"));
    let dense: Vec<u64> = (0..facts.sizes.n_layers).filter(is_dense).collect();
    if dense.is_empty() {
        config.remove("intermediate_size");
    }
    set(config, "mlp_only_layers", dense);
    Ok(())
}

/// Qwen3.5: as Qwen3-Next, but no list of layers without experts.
pub(super) fn qwen3_5(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    qwen3_next(facts, config)?;
    config.remove("mlp_only_layers");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_spaced_layers_have_a_period_and_others_none() {
        let chosen = |text: &str| text.bytes().map(|b| b == b'x').collect::<Vec<bool>>();
        assert_eq!(period_of(&chosen("..x..x..")), Some((3, 2)));
        assert_eq!(period_of(&chosen("xxxx")), Some((1, 0)));
        assert_eq!(period_of(&chosen(".x..")), Some((4, 1)));
        assert_eq!(period_of(&chosen("...")), Some((4, 3)));
        for irregular in ["x..x.x", ".x.x..", "xx.x", "..xx"] {
            assert_eq!(period_of(&chosen(irregular)), None, "{irregular}");
        }
    }
}
