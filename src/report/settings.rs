//! The settings document: every value in force, and its origin.

use attnscope_system::config::{Origin, Value};
use schemars::JsonSchema;
use serde::Serialize;

/// Every setting that is in force.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SettingsDocument {
    pub version: u32,
    /// The file of settings, where one is known
    pub file: Option<String>,
    /// Whether it is there
    pub is_there: bool,
    pub settings: Vec<SettingRow>,
    /// What is wrong with the file or the environment; those settings are as by default
    pub problems: Vec<String>,
}

/// One setting.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SettingRow {
    /// Section and key, as `screen.theme`
    pub name: String,
    pub value: SettingValue,
    /// `default`, `FILE:LINE`, `environment: NAME` or `flag: NAME`
    pub origin: String,
}

/// What a setting is set to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SettingValue {
    Text(String),
    Switch(bool),
    Count(u64),
    Number(f64),
    Keys(Vec<String>),
}

impl SettingRow {
    pub fn new(name: String, value: &Value, origin: &Origin) -> Self {
        let value = match value {
            Value::Text(text) => SettingValue::Text(text.clone()),
            Value::Switch(is_on) => SettingValue::Switch(*is_on),
            Value::Count(n) => SettingValue::Count(*n),
        };
        Self::of(name, value, origin)
    }

    pub fn number(name: String, number: f64, origin: &Origin) -> Self {
        Self::of(name, SettingValue::Number(number), origin)
    }

    pub fn keys(name: String, keys: Vec<String>, origin: &Origin) -> Self {
        Self::of(name, SettingValue::Keys(keys), origin)
    }

    fn of(name: String, value: SettingValue, origin: &Origin) -> Self {
        Self {
            name,
            value,
            origin: origin.to_string(),
        }
    }

    /// Formats the value for a table.
    pub fn shown(&self) -> String {
        match &self.value {
            SettingValue::Text(text) => text.clone(),
            SettingValue::Switch(is_on) => is_on.to_string(),
            SettingValue::Count(n) => n.to_string(),
            SettingValue::Number(number) => number.to_string(),
            SettingValue::Keys(keys) => keys.join(" "),
        }
    }
}
