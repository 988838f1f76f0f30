//! Aliases: model types that another type's family reads exactly, with their own defaults.

use attnscope_checkpoint::{Config, Origin};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::alias_names::{ALIASES, Alias, Held, THETA};

fn of(model_type: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.name == model_type)
}

/// The family that reads this model type; `None` if the type has its own family, or none.
pub(super) fn family_of(model_type: &str) -> Option<&'static str> {
    of(model_type).map(|alias| alias.family)
}

/// All aliases, with their families.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES.iter().map(|alias| (alias.name, alias.family))
}

/// Adds the defaults of the model type to a configuration.
///
/// # Errors
/// When the configuration turns on a part that the family does not have.
pub(super) fn complete(config: &mut Config) -> Result<()> {
    // A separate text configuration is completed on its own.
    let is_apart = config.get("text_config").is_some_and(Value::is_object);
    let name = config.get("model_type").and_then(Value::as_str);
    let Some(alias) = name.filter(|_| !is_apart).and_then(of) else {
        return Ok(());
    };
    for key in alias.off {
        let found = config.get(key).filter(|found| !found.is_null());
        if let Some(found) = found.filter(|found| **found != Value::Bool(false)) {
            let problem = format!(
                "expected false: {} is read without it, found {found}",
                alias.name
            );
            return Err(Error::config(config.path(), *key, problem));
        }
    }
    for (key, held) in alias.absent {
        if config.get(key).is_some() || (*key == THETA && has_theta(config)) {
            continue;
        }
        let value = match held {
            // Sizes have to be whole numbers of JSON.
            Held::Number(number) if number.fract() == 0.0 => Value::from(*number as i64),
            Held::Number(number) => Value::from(*number),
            Held::Count(count) => Value::from(*count),
            Held::Flag(flag) => Value::from(*flag),
            Held::Word(word) => Value::from(*word),
            Held::TokenOf(other, token) => {
                let stated = config.get(other).filter(|value| !value.is_null());
                stated.cloned().unwrap_or(Value::from(*token))
            }
        };
        config.put(key, value, Origin::Default((*key).to_owned()));
    }
    for (knob, value) in alias.always {
        if !config.is_fixed(knob) {
            config.fix(knob, *value, Origin::Family);
        }
    }
    Ok(())
}

/// Whether a configuration states the rotary base inside its rotary parameters.
fn has_theta(config: &Config) -> bool {
    ["rope_parameters", "rope_scaling"].iter().any(|key| {
        let inside = config.get(key).and_then(|value| value.get(THETA));
        inside.is_some_and(|value| !value.is_null())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::FAMILIES;

    #[test]
    fn aliases_are_sorted_and_name_families() {
        assert!(ALIASES.is_sorted_by_key(|alias| alias.name));
        for (name, family) in all() {
            let known = |name: &str| FAMILIES.iter().any(|family| family.model_type == name);
            assert!(known(family) && !known(name), "{name}");
        }
    }

    fn completed(json: &str) -> Result<Config> {
        let mut config = Config::parse(Path::new("config.json"), json)?;
        complete(&mut config)?;
        Ok(config)
    }

    #[test]
    fn values_that_a_configuration_states_are_kept() {
        let theta = |json: &str| {
            let config = completed(json).expect("is complete");
            config.get(THETA).and_then(Value::as_f64)
        };
        assert_eq!(theta(r#"{"model_type": "qwen3_vl_text"}"#), Some(5e5));
        let stated = r#"{"model_type": "qwen3_vl_text", "rope_theta": 100.0}"#;
        assert_eq!(theta(stated), Some(100.0));
        for inside in ["rope_parameters", "rope_scaling"] {
            let stated = format!(
                r#"{{"model_type": "qwen3_vl_text", "{inside}": {{"rope_theta": 100.0}}}}"#
            );
            assert_eq!(theta(&stated), None);
        }
        // The outer configuration of a model with a separate text configuration.
        let apart = r#"{"model_type": "qwen2_vl", "text_config": {}}"#;
        assert_eq!(theta(apart), None);
    }

    #[test]
    fn sizes_of_absent_keys_are_whole_numbers() {
        let config = completed(r#"{"model_type": "internlm3"}"#).expect("is complete");
        assert_eq!(config.get("head_dim").and_then(Value::as_u64), Some(128));
    }

    #[test]
    fn parts_that_a_family_lacks_are_refused() {
        for (name, key) in [
            ("flaubert", "pre_norm"),
            ("ibert", "quant_mode"),
            ("mvp", "use_prompt"),
            ("internlm3", "qkv_bias"),
        ] {
            let said = completed(&format!(r#"{{"model_type": "{name}", "{key}": true}}"#));
            let said = said.expect_err("is refused").to_string();
            assert!(said.contains(key) && said.contains(name), "{said}");
            completed(&format!(r#"{{"model_type": "{name}", "{key}": false}}"#)).expect("is off");
        }
    }
}
