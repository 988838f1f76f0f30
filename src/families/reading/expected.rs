//! Keys with only one value that a family reads: any other would make it a different model.

use attnscope_checkpoint::Reader;
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

/// The only value that a family reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Flag(bool),
    Number(u64),
    Word(&'static str),
}

impl Expected {
    fn is(self, found: &Value) -> bool {
        match (self, found) {
            // One entry for each layer.
            (_, Value::Array(list)) => list.iter().all(|found| self.is(found)),
            (Self::Flag(flag), found) => found.as_bool() == Some(flag),
            (Self::Number(number), found) => found.as_f64() == Some(number as f64),
            (Self::Word(word), found) => found.as_str() == Some(word),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Word(word) => word.to_owned(),
        }
    }
}

/// Refuses a configuration that states another value than the expected one; an absent key is expected.
///
/// # Errors
/// When a key has another value.
pub fn check(reader: &mut Reader<'_>, keys: &[(&'static str, Expected)]) -> Result<()> {
    for (key, expected) in keys {
        if let Some(found) = reader.value(key).filter(|found| !expected.is(found)) {
            let expected = expected.text();
            let problem = format!(
                "expected {expected}: this family is read with no other value, found {found}"
            );
            return Err(Error::config(reader.path(), *key, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use attnscope_checkpoint::Config;

    use super::*;

    #[test]
    fn only_the_expected_value_is_read() {
        let said = |json: &str| {
            let config = Config::parse(Path::new("config.json"), json).expect("is read");
            let keys = [("a", Expected::Number(1)), ("b", Expected::Word("x"))];
            check(&mut Reader::new(&config), &keys).map_err(|refused| refused.to_string())
        };
        for right in [
            "{}",
            r#"{"a": 1, "b": "x"}"#,
            r#"{"a": [1, 1]}"#,
            r#"{"a": null}"#,
        ] {
            assert_eq!(said(right), Ok(()), "{right}");
        }
        for wrong in [
            r#"{"a": 2}"#,
            r#"{"a": [1, 2]}"#,
            r#"{"b": "y"}"#,
            r#"{"b": true}"#,
        ] {
            assert!(
                said(wrong).is_err_and(|said| said.contains("found")),
                "{wrong}"
            );
        }
    }
}
