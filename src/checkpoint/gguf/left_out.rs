//! Remarks on settings that converters omit, and on the values assumed for them.

use super::config::WINDOW;
use crate::config::Config;

/// Model types whose converters omit rotary scaling or windows.
const SCALING_OR_WINDOW: [&str; 4] = ["llama", "mixtral", "qwen2", "qwen3"];

/// Model types with a setting that has no key in the format: model type, setting, assumed value.
const NO_KEY: &[(&str, &str, &str)] = &[
    ("bert", "the activation", "gelu"),
    (
        "bloom",
        "which values a branch is added to",
        "those before the norm",
    ),
    ("distilbert", "the activation", "gelu"),
    (
        "falcon_h1",
        "the order of gate and norm",
        "the gate first, as llama.cpp has it",
    ),
    (
        "gpt_oss",
        "whether the ends of yarn's band are rounded",
        "as they are, as in all published models; llama.cpp rounds them",
    ),
    (
        "llama4_text",
        "the width of chunks and which layers see everything",
        "8192 and every fourth, as in all published models",
    ),
    ("mpt", "the scale of scores", "1/sqrt(d_head)"),
    (
        "nemotron_h",
        "activations and the shortest step",
        "relu2, silu and 0, as llama.cpp has them",
    ),
    (
        "phimoe",
        "the jitter of the router",
        "0.01, as in all published models",
    ),
    ("smollm3", "which layers have no positions", "every fourth"),
    ("t5", "from which distance keys share a bucket", "128"),
    ("umt5", "from which distance keys share a bucket", "128"),
];

/// Model types with a key that is missing from some files: model type, key, setting, value assumed without it.
const AT_TIMES: &[(&str, &str, &str, &str)] = &[
    (
        "cohere2",
        "cohere2.attention.sliding_window_pattern",
        "which layers see a window",
        "all but every fourth",
    ),
    (
        "gemma2",
        "gemma2.attention.scale",
        "the scale of scores",
        "that of the published models of this size",
    ),
    (
        "gemma3_text",
        "gemma3.attention.scale",
        "the scale of scores",
        "that of the published models of this size",
    ),
    (
        "gpt_neox",
        "gptneox.rope.freq_base",
        "the base of rotary positions",
        "10000",
    ),
    (
        "starcoder2",
        "starcoder2.attention.sliding_window",
        "a window",
        "none",
    ),
];

/// Builds the remark on what a file does not state; `states` says whether the file has a key.
pub(super) fn remark(config: &Config, states: impl Fn(&str) -> bool) -> Option<String> {
    let kind = config.get("model_type")?.as_str()?;
    let unsaid =
        |what: &str, taken: &str| format!("the GGUF file does not state {what}: taken as {taken}");
    let scaling = config
        .get("rope_scaling")
        .and_then(|scaling| scaling.get("rope_type"));
    let is_yarn = scaling.is_some_and(|kind| kind == "yarn");
    if let Some((_, what, taken)) = NO_KEY.iter().find(|(known, ..)| *known == kind) {
        let matters = match kind {
            "gpt_oss" => is_yarn,
            "falcon_h1" => config.get("mamba_rms_norm").and_then(|v| v.as_bool()) == Some(true),
            _ => true,
        };
        return matters.then(|| unsaid(what, taken));
    }
    let at_times = AT_TIMES
        .iter()
        .find(|(known, key, ..)| *known == kind && !states(key));
    if let Some((_, _, what, taken)) = at_times {
        return Some(unsaid(what, taken));
    }
    if !SCALING_OR_WINDOW.contains(&kind) {
        return None;
    }
    if let Some(window) = config.get(&format!("{kind}.{WINDOW}")) {
        return Some(format!(
            "the GGUF file states a window of {window} and not for which layers: it is left out, as llama.cpp does; \
             --set window={window} gives it to every layer"
        ));
    }
    let has = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    (!has("rope_scaling") && !has("sliding_window")).then(|| {
        "the GGUF file states neither a scaling of rotary positions nor a window: converters leave some out, so that the model \
         as Hugging Face runs it may differ; it is read as llama.cpp reads it"
            .to_owned()
    })
}
