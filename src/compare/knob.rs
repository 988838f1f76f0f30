//! Knob of a model: its name, place and value.

use std::fmt;

/// Value of a knob.
#[derive(Debug, Clone, PartialEq)]
pub enum KnobValue {
    Number(f64),
    Word(String),
}

impl KnobValue {
    /// Converts an f32 to the number that a person would write.
    pub(super) fn single(value: f32) -> Self {
        // Parses the shortest digits that give this f32: 1e-5, not 9.999999747378752e-6.
        Self::Number(value.to_string().parse().unwrap_or(f64::from(value)))
    }

    pub(super) fn count(n: usize) -> Self {
        Self::Number(n as f64)
    }

    pub(super) fn word(value: impl fmt::Display) -> Self {
        Self::Word(value.to_string())
    }

    /// Converts an optional value; a missing one becomes `none`.
    pub(super) fn or_none<T>(value: Option<T>, of: impl Fn(T) -> Self) -> Self {
        value.map_or_else(|| Self::word("none"), of)
    }
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) if *n != 0.0 && (n.abs() < 1e-3 || n.abs() >= 1e15) => {
                write!(f, "{n:e}")
            }
            Self::Number(n) => write!(f, "{n}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Kind of a knob, which decides what a difference prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnobKind {
    /// A size or a part of the model; hooks and tensors of models that differ in it cannot be paired.
    Shape,
    /// How values are computed.
    Computation,
    /// Name, context length, or begin and end tokens: no effect on a prompt that both models accept.
    Label,
}

/// A knob of one model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpecKnob {
    pub name: &'static str,
    pub kind: KnobKind,
    /// Place in the model; empty for a model-wide knob.
    pub slot: String,
    pub value: KnobValue,
}
