//! A value of a setting, and its origin.

use std::fmt;
use std::path::PathBuf;

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Switch(bool),
    Count(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Switch(is_on) => write!(f, "{is_on}"),
            Self::Count(n) => write!(f, "{n}"),
        }
    }
}

/// A Rust type that a setting's value converts to.
pub trait FromSetting {
    fn of(value: &Value) -> Self;
}

impl FromSetting for String {
    fn of(value: &Value) -> Self {
        value.to_string()
    }
}

impl FromSetting for bool {
    fn of(value: &Value) -> Self {
        *value == Value::Switch(true)
    }
}

impl FromSetting for usize {
    fn of(value: &Value) -> Self {
        match value {
            Value::Count(n) => Self::try_from(*n).unwrap_or(Self::MAX),
            Value::Text(_) | Value::Switch(_) => 0,
        }
    }
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// The settings file, and the line counted from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(&'static str),
    /// A command-line flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment: {name}"),
            Self::Flag(flag) => write!(f, "flag: {flag}"),
        }
    }
}
