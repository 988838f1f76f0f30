//! Gemma 4: heads of two widths, two rotary embeddings, and layers that use their keys as values.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::facts::{Facts, KV_HEADS, set};
use super::windows::slides;

const FREQS: &str = "rope_freqs.weight";
/// Frequency divisor that the file uses for pairs that do not rotate.
const STILL: f32 = 1e30;

/// Number of key/value heads of a layer, and the width of a head.
type Heads = (u64, u64);

pub(super) fn gemma4(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let slides = slides(facts, 6)?;
    let heads = heads(facts, &slides)?;
    let usual = (0..heads.len()).find(|idx| slides[*idx]).unwrap_or(0);
    let (n_kv, d_head) = heads[usual];
    set(config, "num_key_value_heads", n_kv);
    set(config, "head_dim", d_head);
    let mut others = Map::new();
    for (layer_idx, (n_kv, d_head)) in heads.iter().enumerate() {
        if heads[layer_idx] != heads[usual] {
            let own = json!({"head_dim": d_head, "num_key_value_heads": n_kv});
            others.insert(layer_idx.to_string(), own);
        }
    }
    set(config, "per_layer_config", others);
    set(config, "attention_k_eq_v", values_are_keys(facts, &slides)?);
    rotations(facts, config, &slides)?;
    let width = facts.whole("embedding_length_per_layer_input")?;
    set(config, "hidden_size_per_layer_input", width.unwrap_or(0));
    if let Some(rows) = facts.rows("model.embed_tokens_per_layer.weight") {
        set(config, "vocab_size_per_layer_input", rows);
    }
    let n_shared = facts.whole("attention.shared_kv_layers")?.unwrap_or(0);
    set(config, "num_kv_shared_layers", n_shared);
    if let Some(widths) = facts.wholes("feed_forward_length")? {
        let is_wide = widths.iter().max() != widths.iter().min();
        set(config, "use_double_wide_mlp", is_wide);
    }
    Ok(())
}

/// Reads the heads of every layer; layers with a window have their own keys for the width.
fn heads(facts: &Facts<'_>, slides: &[bool]) -> Result<Vec<Heads>> {
    let wide = facts.sizes.d_head;
    let narrow = facts.whole("attention.key_length_swa")?.unwrap_or(wide);
    let of_values = facts.whole("attention.value_length_swa")?;
    if of_values.is_some_and(|width| width != narrow) {
        let problem = format!("expected {narrow} as for the keys, found {of_values:?}");
        return facts.refuse("attention.value_length_swa", problem);
    }
    let same = || vec![facts.sizes.n_kv_heads; slides.len()];
    let listed = facts.wholes(KV_HEADS)?.unwrap_or_else(same);
    if listed.len() < slides.len() {
        let problem = format!("expected a number for each layer, found {listed:?}");
        return facts.refuse(KV_HEADS, problem);
    }
    let width = |slides: &bool| if *slides { narrow } else { wide };
    Ok(listed.into_iter().zip(slides.iter().map(width)).collect())
}

/// Whether layers without a window use their keys as values.
fn values_are_keys(facts: &Facts<'_>, slides: &[bool]) -> Result<bool> {
    let has = |layer_idx: usize, part: &str| {
        facts.has(&format!(
            "model.layers.{layer_idx}.self_attn.{part}_proj.weight"
        ))
    };
    let lacks = |layer_idx: &usize| has(*layer_idx, "k") && !has(*layer_idx, "v");
    let lacking: Vec<usize> = (0..slides.len()).filter(lacks).collect();
    let whole = (0..slides.len()).filter(|idx| !slides[*idx] && has(*idx, "k"));
    if !lacking.is_empty() && !whole.eq(lacking.iter().copied()) {
        let problem = format!(
            "expected values in all layers, or in those with a window alone, found none in layers {lacking:?}"
        );
        return Err(Error::tensor(
            facts.metadata.path,
            "blk.N.attn_v.weight",
            problem,
        ));
    }
    Ok(!lacking.is_empty())
}

/// Sets the rotary parameters of layers with a window, and of the others, in which only a share of the pairs rotates.
fn rotations(facts: &Facts<'_>, config: &mut Map<String, Value>, slides: &[bool]) -> Result<()> {
    let theta = config.remove("rope_theta").unwrap_or_default();
    let local = facts.number("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let mut sliding = json!({"rope_type": "default", "rope_theta": local});
    let narrow = config.get("head_dim").and_then(Value::as_u64);
    let turning = facts.whole("rope.dimension_count_swa")?;
    if let (Some(turning), Some(narrow)) = (turning, narrow)
        && slides.contains(&true)
        && turning != narrow
    {
        sliding["partial_rotary_factor"] = json!(turning as f64 / narrow as f64);
    }
    let share = share_that_turns(facts)?;
    let full =
        json!({"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share});
    let both = json!({"full_attention": full, "sliding_attention": sliding});
    set(config, "rope_parameters", both);
    Ok(())
}

/// Computes the share of a head that rotates: the pairs behind it have a divisor that stops them.
fn share_that_turns(facts: &Facts<'_>) -> Result<f64> {
    let d_head = facts.sizes.d_head as f64;
    let Some(info) = facts.tensors.info(FREQS) else {
        return Ok(1.0);
    };
    let stored = facts.tensors.expect(FREQS, &[info.n_elements()])?.widen()?;
    let n_turning = stored.iter().take_while(|factor| **factor == 1.0).count();
    let is_known = stored[n_turning..].iter().all(|factor| *factor >= STILL);
    if !is_known || stored.len() as f64 * 2.0 != d_head {
        let problem = format!("expected 1 or {STILL:e} for each of {} pairs", d_head / 2.0);
        return Err(Error::tensor(facts.metadata.path, FREQS, problem));
    }
    // Rounded up if needed, so that multiplying by the share gives the same number of pairs.
    let share = 2.0 * n_turning as f64 / d_head;
    let is_short = ((share * d_head) / 2.0).floor() < n_turning as f64;
    Ok(if is_short { share.next_up() } else { share })
}
