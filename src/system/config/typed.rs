//! Conversion of TOML values to values of settings.

use toml::de::DeValue;

use super::setting::{Kind, Setting};
use super::value::Value;

/// Converts a TOML value to the type of a setting.
///
/// # Errors
/// What was expected, and what was found.
pub fn value_of(setting: &Setting, value: &DeValue<'_>) -> Result<Value, String> {
    let wrong = || {
        Err(format!(
            "expected {}, found {}",
            setting.expected(),
            kind(value)
        ))
    };
    match (setting.kind, value) {
        (Kind::Switch, DeValue::Boolean(is_on)) => Ok(Value::Switch(*is_on)),
        (Kind::Choice(_) | Kind::Theme(_) | Kind::Statistic, DeValue::String(word)) => {
            setting.of_word(word)
        }
        (Kind::Choice(_) | Kind::Count { .. }, DeValue::Integer(number)) => {
            match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => setting.of_number(number),
                Err(_) => wrong(),
            }
        }
        _ => wrong(),
    }
}

/// Returns a finite number.
pub fn number(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok()? as f64
        }
        DeValue::Float(number) => number.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// Names the type of a TOML value.
pub fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}
