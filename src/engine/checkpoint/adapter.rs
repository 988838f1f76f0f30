//! Adapters beside weights: found, so that a base is never taken for the model that it becomes with its adapter.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CONFIGURATION, read_text};
use crate::error::{Error, Result};

/// What describes an adapter of the PEFT library.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";
/// What the weights of an adapter are called, less the ending.
const ADAPTER_WEIGHTS: &str = "adapter_model";

/// An adapter that lies in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    pub config: PathBuf,
    /// Its method in PEFT's words; `None` where the file does not say.
    pub method: Option<String>,
    /// The model that it changes, by a path or a name.
    pub base: Option<String>,
}

impl Adapter {
    /// The adapter of a directory; `None` where there is none.
    pub fn find(directory: &Path) -> Option<Self> {
        let config = directory.join(ADAPTER_CONFIG);
        if !config.is_file() {
            return None;
        }
        // A damaged file still says that there is an adapter.
        let text = read_text(&config, CONFIGURATION).unwrap_or_default();
        let values: Value = serde_json::from_str(&text).unwrap_or_default();
        let word = |key: &str| {
            let word = values.get(key).and_then(Value::as_str);
            word.filter(|word| !word.is_empty()).map(str::to_owned)
        };
        Some(Self {
            method: word("peft_type"),
            base: word("base_model_name_or_path"),
            config,
        })
    }

    /// What it is called in messages.
    pub fn words(&self) -> String {
        match &self.method {
            Some(method) => format!("an adapter ({method})"),
            None => "an adapter".to_owned(),
        }
    }

    /// Refuses to open weights as if their adapter were not there, unless it is to be left out; then says that it is.
    ///
    /// # Errors
    /// When the adapter would go unnoticed, or the file holds the adapter itself.
    pub fn check(directory: &Path, file: &Path, is_left_out: bool) -> Result<Option<String>> {
        let Some(adapter) = Self::find(directory) else {
            return Ok(None);
        };
        let what = adapter.words();
        let stem = file.file_stem().unwrap_or_default();
        if stem == ADAPTER_WEIGHTS {
            let base = match &adapter.base {
                Some(base) => format!("its base is {base}"),
                None => format!("{ADAPTER_CONFIG} does not say which base it changes"),
            };
            let problem = format!(
                "holds {what}, not a model; {base}: merge the two (merge_and_unload of PEFT) and open the result"
            );
            return Err(Error::file(file, problem));
        }
        if is_left_out {
            let said = format!("{what} lies beside the weights and is left out: {ADAPTER_CONFIG}");
            return Ok(Some(said));
        }
        let problem = format!(
            "{what} lies beside the weights, and from_pretrained loads it; merge the two (merge_and_unload of PEFT), \
             or open the base without it: --no-adapter"
        );
        Err(Error::file(&adapter.config, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_refused_told_or_absent() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let model = at.join("model.safetensors");
        assert_eq!(Adapter::check(at, &model, false).expect("opens"), None);
        let text = r#"{"peft_type": "LORA", "base_model_name_or_path": "some/base"}"#;
        for (text, word) in [
            (text, "(LORA)"),
            ("{", "an adapter lies"),
            ("[]", "an adapter"),
        ] {
            std::fs::write(at.join(ADAPTER_CONFIG), text).expect("writes");
            let refused = Adapter::check(at, &model, false).expect_err("an adapter");
            let refused = refused.to_string();
            assert!(
                refused.contains(word) && refused.contains("--no-adapter"),
                "{refused}"
            );
            let said = Adapter::check(at, &model, true)
                .expect("opens")
                .expect("a remark");
            assert!(said.contains("left out"), "{said}");
        }
        std::fs::write(at.join(ADAPTER_CONFIG), text).expect("writes");
        let own = Adapter::check(at, &at.join("adapter_model.safetensors"), true);
        let own = own.expect_err("no model").to_string();
        assert!(
            own.contains("not a model") && own.contains("some/base"),
            "{own}"
        );
    }
}
