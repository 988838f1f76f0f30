//! `modules.json` of sentence-transformers: where the transformer is, and how the last hidden states are pooled.

use std::path::Path;

use serde_json::{Map, Value};

use super::named_paths::is_inside;
use super::{CONFIGURATION, read_text};

/// Name of the file that lists the parts of a model.
pub const MODULES: &str = "modules.json";
/// Limit on the parts of a model.
const MOST: usize = 32;

/// Pooling modes: the configuration's name, the older configuration's key, and a description.
const MODES: [(&str, &str, &str); 6] = [
    ("cls", "pooling_mode_cls_token", "first token"),
    ("max", "pooling_mode_max_tokens", "maximum over tokens"),
    ("mean", "pooling_mode_mean_tokens", "mean of tokens"),
    (
        "mean_sqrt_len_tokens",
        "pooling_mode_mean_sqrt_len_tokens",
        "sum of tokens over the root of their number",
    ),
    (
        "weightedmean",
        "pooling_mode_weightedmean_tokens",
        "mean of tokens weighted by position",
    ),
    ("lasttoken", "pooling_mode_lasttoken", "last token"),
];

/// Finds the directory of the transformer in a sentence-transformers model.
pub fn transformer_of(modules: &Path) -> Option<String> {
    if !modules.is_file() {
        return None;
    }
    let text = read_text(modules, CONFIGURATION).ok()?;
    let list: Value = serde_json::from_str(&text).ok()?;
    let first = list.as_array()?.iter().find(|part| {
        part.get("type")
            .and_then(|kind| kind.as_str())
            .is_some_and(|kind| kind.ends_with(".Transformer"))
    })?;
    let path = first.get("path")?.as_str()?;
    (!path.is_empty() && is_inside(path)).then(|| path.to_owned())
}

/// Describes the pooling of the last hidden states in `modules.json` of `directory`: "mean of tokens, then normalised".
pub fn pooling(directory: &Path) -> Option<String> {
    let file = directory.join(MODULES);
    if !file.is_file() {
        return None;
    }
    let list: Value = serde_json::from_str(&read_text(&file, CONFIGURATION).ok()?).ok()?;
    let steps: Vec<String> = list
        .as_array()?
        .iter()
        .take(MOST)
        .filter_map(|part| step(directory, part))
        .collect();
    (!steps.is_empty()).then(|| steps.join(", then "))
}

/// Describes one part; `None` for the transformer itself.
fn step(directory: &Path, part: &Value) -> Option<String> {
    let kind = part.get("type")?.as_str()?.rsplit('.').next()?;
    match kind {
        "Transformer" => None,
        "Normalize" => Some("normalised".to_owned()),
        "Pooling" => {
            let path = part.get("path").and_then(Value::as_str)?;
            let inside = is_inside(path).then(|| directory.join(path));
            let config = inside.map(|path| path.join("config.json"));
            let text = read_text(&config?, CONFIGURATION).ok()?;
            Some(pooled(&serde_json::from_str(&text).ok()?))
        }
        other => Some(other.to_owned()),
    }
}

fn pooled(config: &Map<String, Value>) -> String {
    let named = config.get("pooling_mode").and_then(Value::as_str);
    let is_on = |(word, key, _): &&(&str, &str, &str)| match named {
        Some(named) => named.split('+').any(|mode| mode == *word),
        None => config.get(*key) == Some(&Value::Bool(true)),
    };
    let modes: Vec<&str> = MODES.iter().filter(is_on).map(|mode| mode.2).collect();
    match (modes.is_empty(), named) {
        (false, _) => modes.join(" beside "),
        (true, Some(named)) => format!("pooled by {named}"),
        (true, None) => "pooled in a way that its configuration does not name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooling_is_described_for_new_and_old_configurations() {
        let made = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let file = made.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
            std::fs::write(file, text).expect("written");
        };
        assert_eq!(pooling(made.path()), None);
        write(
            MODULES,
            r#"[{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#,
        );
        for (config, said) in [
            (
                r#"{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#,
                "mean of tokens",
            ),
            (
                r#"{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}"#,
                "first token beside maximum over tokens",
            ),
            (r#"{"pooling_mode": "lasttoken"}"#, "last token"),
            (r#"{"pooling_mode": "learned"}"#, "pooled by learned"),
        ] {
            write("1_Pooling/config.json", config);
            let found = pooling(made.path()).expect("pooled");
            assert_eq!(found, format!("{said}, then normalised"));
        }
    }
}
