//! Numbers as JSON carries them.

use serde::{Serialize, Serializer};

/// JSON has no word for NaN: it becomes a string, never null and never 0.
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

/// The shortest digits that read back as the same number; words where there are none, as in JSON.
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
    fn numbers_read_back_as_they_were() {
        for value in [0.1, 1.0, 1e-300, -2.5e20, 0.0] {
            assert_eq!(number(value).parse::<f64>().expect("a number"), value);
        }
        assert_eq!(number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
