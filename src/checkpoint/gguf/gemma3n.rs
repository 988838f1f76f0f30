//! Gemma 3n: parallel residual streams (AltUp), and feed-forward blocks with sparse activations.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::facts::{Facts, set};
use super::value::Value as Stored;

pub(super) fn gemma3n(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(widths) = facts.wholes("feed_forward_length")? {
        set(config, "intermediate_size", widths);
    }
    let shares = inactive_gate_share(facts)?;
    set(config, "activation_sparsity_pattern", shares);
    if let Some(rank) = facts.rows("model.layers.0.laurel.linear_left.weight") {
        set(config, "laurel_rank", rank);
    }
    if let Some(rows) = facts.rows("model.embed_tokens_per_layer.weight") {
        set(config, "vocab_size_per_layer_input", rows);
    }
    let theta = config.remove("rope_theta").unwrap_or_default();
    let local = facts.number("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let both = json!({
        "full_attention": {"rope_type": "default", "rope_theta": theta},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    });
    set(config, "rope_parameters", both);
    let cap = facts.number("final_logit_softcapping")?.unwrap_or(30.0);
    set(config, "final_logit_softcapping", cap);
    Ok(())
}

/// Computes the share of inactive gates by layer. The file states how many standard deviations above the mean a gate must be
/// to be active, and minus infinity where all are.
fn inactive_gate_share(facts: &Facts<'_>) -> Result<Vec<f64>> {
    const KEY: &str = "activation_sparsity_scale";
    let n_layers = facts.sizes.n_layers as usize;
    let problem = format!("expected a number for each of {n_layers} layers");
    let Some(list) = facts.metadata.list(&facts.key(KEY))? else {
        return facts.refuse(KEY, format!("missing, {problem}"));
    };
    let share = |value: Stored| match value {
        Stored::F32(spreads) if !spreads.is_nan() && spreads < f32::INFINITY => {
            let share = 0.5 * libm::erfc(-f64::from(spreads) / std::f64::consts::SQRT_2);
            // Rounded to the decimal that was configured: single precision has about seven digits.
            Some((share * 1e6).round() / 1e6)
        }
        _ => None,
    };
    let all = facts.metadata.elements(list)?;
    let shares: Option<Vec<f64>> = all.into_iter().map(share).collect();
    match shares.filter(|shares| shares.len() == n_layers) {
        Some(shares) => Ok(shares),
        None => facts.refuse(KEY, problem),
    }
}
