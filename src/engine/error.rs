//! Errors of the engine, with a kind that a program can match.

use std::fmt;

use attnscope_compute::error;

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing, unreadable, or its contents are invalid.
    File,
    /// A file was written to while it was in use.
    Changed,
    /// A tensor is missing, or does not fit the architecture.
    Tensor,
    /// A configuration value is missing or invalid.
    Configuration,
    /// The text, ids or mask do not fit the model or each other.
    Prompt,
    /// An argument of the caller is unknown or out of range, such as a threshold, a layer or a head.
    Setting,
    /// The device cannot be used.
    Device,
    /// The work was cancelled.
    Cancelled,
}

/// An error of the engine. Its message is one line that names the file, the tensor or the key, what was expected and what was
/// found.
#[derive(Debug)]
pub struct Error(error::Error);

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            error::Error::File { .. } => ErrorKind::File,
            error::Error::Changed { .. } => ErrorKind::Changed,
            error::Error::Tensor { .. } => ErrorKind::Tensor,
            error::Error::Config { .. } => ErrorKind::Configuration,
            error::Error::Prompt(_) => ErrorKind::Prompt,
            error::Error::Setting(_) => ErrorKind::Setting,
            error::Error::Device(_) => ErrorKind::Device,
            error::Error::Cancelled => ErrorKind::Cancelled,
        }
    }

    pub(crate) fn setting(problem: String) -> Self {
        Self(error::Error::Setting(problem))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<error::Error> for Error {
    fn from(error: error::Error) -> Self {
        Self(error)
    }
}
