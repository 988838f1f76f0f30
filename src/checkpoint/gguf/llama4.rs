//! Llama 4: the settings that llama.cpp assumes for all of its models, and the layers with experts.

use attnscope_compute::error::Result;
use serde_json::{Map, Value};

use super::facts::{Facts, set};

/// Width of attention chunks. Every `FULL_EVERY`-th layer has full attention and no rotary embedding.
const CHUNK: u64 = 8192;
const FULL_EVERY: u64 = 4;
/// Number of experts of the only published model without norms on queries and keys.
const MANY_EXPERTS: u64 = 128;

pub(super) fn llama4(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const WINDOW: &str = "attention.sliding_window";
    if facts.whole(WINDOW)? == Some(0) {
        let problem = "0 (no chunks) is not known, expected nothing".to_owned();
        return facts.refuse(WINDOW, problem);
    }
    let n_layers = facts.sizes.n_layers;
    let is_full = |idx: &u64| (idx + 1).is_multiple_of(FULL_EVERY);
    let rotates: Vec<u8> = (0..n_layers).map(|idx| u8::from(!is_full(&idx))).collect();
    let word = |idx: u64| {
        if is_full(&idx) {
            "full_attention"
        } else {
            "chunked_attention"
        }
    };
    let types: Vec<&str> = (0..n_layers).map(word).collect();
    set(config, "no_rope_layers", rotates);
    set(config, "layer_types", types);
    set(config, "attention_chunk_size", CHUNK);
    set(config, "attn_temperature_tuning", true);
    set(config, "floor_scale", CHUNK);
    set(config, "attn_scale", 0.1);
    let router = |idx: &u64| facts.has(&format!("model.layers.{idx}.feed_forward.router.weight"));
    let sparse: Vec<u64> = (0..n_layers).filter(router).collect();
    set(config, "moe_layers", sparse);
    facts.whole("interleave_moe_layer_step")?;
    let n_experts = facts.whole("expert_count")?.unwrap_or(0);
    set(config, "use_qk_norm", n_experts != MANY_EXPERTS);
    let d_mlp = facts.whole("feed_forward_length")?;
    set(config, "intermediate_size_mlp", d_mlp);
    let d_expert = facts.whole("expert_feed_forward_length")?;
    set(config, "intermediate_size", d_expert);
    Ok(())
}
