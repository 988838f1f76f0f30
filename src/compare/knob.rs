//! One knob of one model: its name, its place and its value.

use std::fmt;

/// The value of a knob.
#[derive(Debug, Clone, PartialEq)]
pub enum KnobValue {
    Number(f64),
    Word(String),
}

impl KnobValue {
    /// A number that is stored as f32, as a person writes it.
    pub(super) fn single(value: f32) -> Self {
        // The shortest digits that give this f32: 1e-5, not 9.999999747378752e-6.
        Self::Number(value.to_string().parse().unwrap_or(f64::from(value)))
    }

    pub(super) fn count(n: usize) -> Self {
        Self::Number(n as f64)
    }

    pub(super) fn word(value: impl fmt::Display) -> Self {
        Self::Word(value.to_string())
    }

    /// A number, or `none`.
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

/// What a knob is about, which decides what a difference of it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnobKind {
    /// A size or a part of the model: hooks and tensors of two models that differ in it cannot be laid side by side.
    Shape,
    /// How values are computed.
    Computation,
    /// What the model is called, how long prompts may be, which tokens begin and end a text: changes no value of a prompt that
    /// both models take.
    Label,
}

/// One knob of one model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpecKnob {
    pub name: &'static str,
    pub kind: KnobKind,
    /// Where in the model, as places are written; empty where the model has one value.
    pub slot: String,
    pub value: KnobValue,
}
