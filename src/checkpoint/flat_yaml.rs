//! Reads the unindented values of a YAML file, as trainers write flat settings. Nested parts become text.

use serde_json::{Map, Value};

/// Parses the unindented `key: value` lines. For a key with nested lines, the value is their text.
pub fn read(text: &str) -> Map<String, Value> {
    let mut values = Map::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t', '-']);
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if is_nested {
            if let Some(key) = &last
                && values.get(key).is_none_or(Value::is_null)
            {
                values.insert(key.clone(), Value::String(content.to_owned()));
            }
            continue;
        }
        let Some((key, value)) = content.split_once(':') else {
            continue;
        };
        let key = key.trim().to_owned();
        values.insert(key.clone(), plain(value.trim()));
        last = Some(key);
    }
    values
}

fn plain(text: &str) -> Value {
    let text = text.split(" #").next().unwrap_or(text).trim();
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" => return Value::Bool(true),
        "false" | "False" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Ok(number) = text.parse::<f64>()
        && number.is_finite()
    {
        return number.into();
    }
    Value::String(text.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_read_and_nested_ones_are_kept_as_text() {
        let read = read("a: 3\nb: 1e-05 # note\nc: 'x: y'\nd:\n  e: 1\nf: null\ng: true\n- h\n");
        let expected = serde_json::json!({ "a": 3, "b": 1e-5, "c": "x: y", "d": "e: 1", "f": null, "g": true });
        assert_eq!(Value::Object(read), expected);
    }
}
