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
