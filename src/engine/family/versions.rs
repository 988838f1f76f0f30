//! What a version of transformers meant by a key, where versions differ: told, with the setting that reads it otherwise.

use serde_json::Value;

use crate::attention::Window;
use crate::checkpoint::Config;
use crate::model::{BlockSpec, ModelSpec};

/// Major and minor of the version of transformers that saved a model, by its key.
pub(super) fn saved_by(stated: Option<&Value>) -> Option<(u32, u32)> {
    let mut parts = stated?.as_str()?.split('.');
    let major = parts.next()?.parse().ok()?;
    Some((major, parts.next()?.parse().ok()?))
}

/// Versions whose windows reached one key further, in every layer, except on flash attention.
const WIDER: std::ops::Range<(u32, u32)> = (4, 37)..(4, 42);
/// Families that had windows then.
const WINDOWED_THEN: [&str; 6] = [
    "mistral",
    "mixtral",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "starcoder2",
];

/// What there is to say of a model that an older version saved.
pub(super) fn remark(config: &Config, spec: &ModelSpec) -> Option<String> {
    let version = saved_by(config.get("transformers_version"))?;
    if !WIDER.contains(&version) || !WINDOWED_THEN.contains(&spec.family) {
        return None;
    }
    let mut attentions = spec
        .main_stack()
        .blocks()
        .iter()
        .filter_map(BlockSpec::attention);
    let width = attentions.find_map(|own| match own.mask.window {
        Some(Window::Back(width)) => Some(width),
        _ => None,
    })?;
    let (major, minor) = version;
    let wider = width + 1;
    Some(format!(
        "a window of {width} is read as {width} keys, as transformers does since 4.42; version {major}.{minor}, which saved this \
         model, lets a query see {wider} in every layer: --set window={wider}"
    ))
}
