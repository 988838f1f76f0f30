//! `adapter_config.json`: which base an adapter is for, and how its update is scaled.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use fancy_regex::Regex;
use serde_json::{Map, Value};

use crate::config::{Config, Origin};
use crate::{CONFIGURATION, read_text};

pub const CONFIG: &str = "adapter_config.json";

/// Limit on per-module ranks and alphas: each pattern is matched against each module.
const MOST_PATTERNS: usize = 2000;

/// Contents of an adapter's configuration file.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    path: PathBuf,
    values: Map<String, Value>,
    /// Path or hub name of the base model.
    pub base: Option<String>,
    /// Revision of the base model on the hub.
    pub revision: Option<String>,
    pub use_dora: bool,
    /// Whether the base stores its matrices as [input, output].
    pub fan_in_fan_out: bool,
    /// Whether a head that is tied to an adapted embedding is adapted with it.
    pub ties_weights: bool,
    alpha: f64,
    is_rank_stabilised: bool,
    alpha_of: Vec<(String, f64)>,
}

impl AdapterConfig {
    /// Reads the configuration of the adapter in a directory.
    ///
    /// # Errors
    /// When the file cannot be read, is no JSON object, or holds an invalid value.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG);
        let text = read_text(&path, CONFIGURATION)?;
        let values = Config::parse(&path, &text)?.into_values();
        let text_at = |key: &str| match values.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let number = |key: &str, default: f64| match values.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_f64().filter(|v| v.is_finite()).ok_or_else(|| {
                Error::config(&path, key, format!("expected a number, found {value}"))
            }),
        };
        let flag = |key: &str| values.get(key) == Some(&Value::Bool(true));
        let mut alpha_of = Vec::new();
        if let Some(Value::Object(patterns)) = values.get("alpha_pattern") {
            if patterns.len() > MOST_PATTERNS {
                let problem = format!(
                    "expected at most {MOST_PATTERNS} entries, found {}",
                    patterns.len()
                );
                return Err(Error::config(&path, "alpha_pattern", problem));
            }
            for (pattern, value) in patterns {
                let Some(alpha) = value.as_f64() else {
                    let problem = format!("{pattern}: expected a number, found {value}");
                    return Err(Error::config(&path, "alpha_pattern", problem));
                };
                alpha_of.push((pattern.clone(), alpha));
            }
        }
        Ok(Self {
            base: text_at("base_model_name_or_path"),
            revision: text_at("revision"),
            use_dora: flag("use_dora"),
            fan_in_fan_out: flag("fan_in_fan_out"),
            ties_weights: flag("ensure_weight_tying"),
            // PEFT's own default.
            alpha: number("lora_alpha", 8.0)?,
            is_rank_stabilised: flag("use_rslora"),
            alpha_of,
            path,
            values,
        })
    }

    /// Path of the file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses adapters that are not LoRA, and LoRA variants that do more than add a product to matrices.
    ///
    /// # Errors
    /// The error names the offending key.
    pub fn check(&self) -> Result<()> {
        const BASE_ALONE: &str = "--no-adapter opens the base alone";
        let refused = |key: &str, problem: String| {
            Err(Error::config(
                &self.path,
                key,
                format!("{problem}; {BASE_ALONE}"),
            ))
        };
        match self.values.get("peft_type") {
            Some(Value::String(kind)) if kind.eq_ignore_ascii_case("lora") => {}
            Some(Value::String(kind)) => {
                return refused(
                    "peft_type",
                    format!("{kind} cannot be applied; readable: LORA"),
                );
            }
            _ => return refused("peft_type", "missing, expected LORA".to_owned()),
        }
        // Any other initialisation changes the weights of the base itself before training.
        if let Some(Value::String(start)) = self.values.get("init_lora_weights")
            && !["gaussian", "eva", "orthogonal", "true", "false"]
                .contains(&start.to_lowercase().as_str())
        {
            let problem = format!(
                "{start:?} changes the base's weights as well, which is not read; \
                 PEFT converts it to a plain LoRA with path_initial_model_for_weight_conversion"
            );
            return refused("init_lora_weights", problem);
        }
        for key in [
            "layer_replication",
            "target_parameters",
            "trainable_token_indices",
            "alora_invocation_tokens",
            "arrow_config",
            "use_qalora",
            "lora_bias",
        ] {
            let is_set = match self.values.get(key) {
                None | Some(Value::Null | Value::Bool(false)) => false,
                Some(Value::Array(list)) => !list.is_empty(),
                Some(Value::Object(entries)) => !entries.is_empty(),
                Some(_) => true,
            };
            if is_set {
                return refused(key, "cannot be applied".to_owned());
            }
        }
        Ok(())
    }

    /// Computes the factor of the product B·A of a module.
    ///
    /// # Errors
    /// When a module pattern is not a valid regular expression.
    pub fn scale(&self, module: &str, rank: usize) -> Result<f64> {
        let mut alpha = self.alpha;
        for (pattern, of_pattern) in &self.alpha_of {
            let refused = |e: fancy_regex::Error| {
                let problem = format!("{pattern:?} is no regular expression ({e})");
                Error::config(&self.path, "alpha_pattern", problem)
            };
            let whole = format!(r"^(?:.*\.)?(?:{pattern})$");
            if Regex::new(&whole)
                .map_err(refused)?
                .is_match(module)
                .map_err(refused)?
            {
                alpha = *of_pattern;
                break;
            }
        }
        let rank = rank as f64;
        Ok(if self.is_rank_stabilised {
            alpha / rank.sqrt()
        } else {
            alpha / rank
        })
    }

    /// Sets the base's class to that of the adapter's task: the task's head may be among the saved tensors.
    pub fn take_task(&self, config: &mut Config) {
        let class_end = match self.values.get("task_type").and_then(Value::as_str) {
            Some("SEQ_CLS") => "ForSequenceClassification",
            Some("TOKEN_CLS") => "ForTokenClassification",
            Some("QUESTION_ANS") => "ForQuestionAnswering",
            _ => return,
        };
        let class = config
            .get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str)
            .map(str::to_owned);
        let Some(class) = class else { return };
        let ends = ["For", "LMHead", "Model", "DoubleHeads"];
        let stem = ends
            .iter()
            .filter_map(|end| class.find(end))
            .min()
            .map_or(class.as_str(), |at| &class[..at]);
        let origin = Origin::Derived(format!("task_type in {CONFIG}"));
        config.put("architectures", vec![format!("{stem}{class_end}")], origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> AdapterConfig {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(CONFIG), json).expect("writes");
        AdapterConfig::read(directory.path()).expect("reads")
    }

    #[test]
    fn patterns_match_ends_of_module_names() {
        let found = config(
            r#"{"peft_type": "LORA", "lora_alpha": 16,
                "alpha_pattern": {"q_proj": 4, "layers\\.1\\.v_proj": 2}}"#,
        );
        for (module, rank, scale) in [
            ("model.layers.0.q_proj", 8, 0.5),
            ("model.layers.0.xq_proj", 8, 2.0),
            ("model.layers.1.v_proj", 2, 1.0),
            ("model.layers.11.v_proj", 2, 8.0),
            ("q_proj", 4, 1.0),
        ] {
            assert_eq!(
                found.scale(module, rank).expect("scales"),
                scale,
                "{module}"
            );
        }
        let stable = config(r#"{"lora_alpha": 16, "use_rslora": true}"#);
        assert_eq!(stable.scale("q_proj", 4).expect("scales"), 8.0);
    }

    #[test]
    fn other_adapters_are_refused_by_name() {
        for (json, key) in [
            (r#"{"peft_type": "LOHA"}"#, "peft_type: LOHA"),
            (
                r#"{"peft_type": "LORA", "init_lora_weights": "pissa_niter_4"}"#,
                "init_lora_weights",
            ),
            (
                r#"{"peft_type": "LORA", "layer_replication": [[0, 2]]}"#,
                "layer_replication",
            ),
            (r#"{"peft_type": "LORA", "lora_bias": true}"#, "lora_bias"),
            ("{}", "peft_type: missing"),
        ] {
            let said = config(json).check().expect_err(json).to_string();
            assert!(said.contains(key), "{said}");
        }
        let plain = r#"{"peft_type": "LORA", "init_lora_weights": true, "lora_bias": false, "layer_replication": null}"#;
        config(plain).check().expect("is a LoRA");
    }
}
