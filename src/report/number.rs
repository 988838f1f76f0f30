//! Numbers as JSON represents them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number. JSON has no NaN: it becomes a string, never null and never 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            v if v.is_nan() => to.serialize_str("NaN"),
            f64::INFINITY => to.serialize_str("Infinity"),
            f64::NEG_INFINITY => to.serialize_str("-Infinity"),
            v => to.serialize_f64(v),
        }
    }
}

/// JSON forms of a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Word(String),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = match Written::deserialize(from)? {
            Written::Number(value) => value,
            Written::Word(word) => match word.as_str() {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => return Err(serde::de::Error::custom(format!("{word:?} is no number"))),
            },
        };
        Ok(Self(value))
    }
}

/// Formats a number in the fewest digits that read back unchanged; NaN and infinities as words, as in JSON.
pub fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        // `Debug` keeps powers of ten, and writes NaN as a word.
        value => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_unchanged() {
        for value in [0.1, 1.0, 1e-300, -2.5e20, 0.0] {
            assert_eq!(number(value).parse::<f64>().expect("a number"), value);
        }
        for value in [0.1, f64::INFINITY, f64::NEG_INFINITY] {
            let written = serde_json::to_string(&Number(value)).expect("writes");
            let read: Number = serde_json::from_str(&written).expect("reads");
            assert_eq!(read, Number(value));
        }
        assert!(serde_json::from_str::<Number>("\"many\"").is_err());
        assert_eq!(number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
