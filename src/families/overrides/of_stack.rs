//! Values of `[set]` that the encoder of a described model has of its own.

use attnscope_checkpoint::nearest::did_you_mean;
use serde_json::Value;

use super::fields::FIELDS;
use super::given::Given;

/// Checks a value of `[set]` that an encoder may have of its own, and gives it as configurations hold it.
///
/// # Errors
/// When no key has this name, the value is not one that it takes, or encoder and decoder share it; with the problem.
pub fn value_of_stack(key: &str, value: &Value) -> Result<Value, String> {
    let Some(field) = FIELDS.iter().find(|field| field.name == key) else {
        let known = FIELDS.iter().map(|field| field.name);
        return Err(format!("{key:?} is not known{}", did_you_mean(key, known)));
    };
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let taken = match (field.read)(&text) {
        Some(Given::Config(value)) => Some(value),
        Some(Given::Causal(causal)) => Some(causal.into()),
        Some(Given::NoPositions) => Some("none".into()),
        Some(_) => None,
        None => return Err(format!("{key}: expected {}, found {value}", field.takes)),
    };
    let shared = ["family", "start_token", "end_token", "head", "pooled"];
    let taken = taken.filter(|_| !shared.contains(&key));
    taken.ok_or_else(|| format!("{key}: expected in [set], since encoder and decoder share it"))
}
