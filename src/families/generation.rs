//! First and last tokens of a target from `generation_config.json`, which takes precedence over the configuration if it exists.

use attnscope_checkpoint::{Checkpoint, GENERATION, Origin};
use attnscope_spec::{Forced, ModelSpec};
use serde_json::Value;

/// Adds the start token of targets to a configuration that does not name it.
pub(super) fn complete(checkpoint: &mut Checkpoint) {
    const START: &str = "decoder_start_token_id";
    let is_absent = checkpoint.config.get(START).is_none_or(Value::is_null);
    let has_encoder = checkpoint.config.get("is_encoder_decoder") == Some(&Value::Bool(true));
    if !is_absent || checkpoint.config.is_absent() {
        return;
    }
    let stated = checkpoint.sibling_config(GENERATION);
    let start = stated.and_then(|mut values| values.remove(START));
    if let Some(start) = start.filter(|start| start.is_u64() && has_encoder) {
        let origin = Origin::Derived(format!("{GENERATION} {START}"));
        checkpoint.config.put(START, start, origin);
    }
}

/// Takes forced first tokens and end tokens from the generation settings.
pub(super) fn settle(checkpoint: &Checkpoint, spec: &mut ModelSpec) {
    let Some(start) = &mut spec.decoder_start else {
        return;
    };
    // Speech models have already read all generation settings.
    let has_prefix = !start.prefixes[0].ids().is_empty() || !start.prefixes[1].ids().is_empty();
    if has_prefix || spec.timing.is_some() {
        return;
    }
    let Some(values) = checkpoint.sibling_config(GENERATION) else {
        return;
    };
    let ids = |key: &str| -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match values.get(key) {
            Some(Value::Array(all)) => all.iter().filter_map(id).collect(),
            Some(one) => id(one).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let forced = ids("forced_bos_token_id").into_iter().take(1);
    start.forced = forced.map(Forced::Token).collect();
    for end in ids("eos_token_id") {
        if !start.end_tokens.contains(&end) {
            start.end_tokens.push(end);
        }
    }
}
