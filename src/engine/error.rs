//! Errors: what could not be read or computed, with a kind that a program can match.

use std::fmt;

use attnscope_compute::error;

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing, unreadable, or does not hold what it claims to hold.
    File,
    /// A file was written to while it was in use.
    Changed,
    /// A tensor is missing, or is not what the architecture needs.
    Tensor,
    /// A configuration value is missing or cannot be right.
    Configuration,
    /// The text, the ids or the mask do not fit each other or the model.
    Prompt,
    /// A setting of the caller is not known or does not fit: a threshold, a layer, a head.
    Setting,
    /// The device cannot be used.
    Device,
    /// The work was stopped.
    Cancelled,
}

/// One line that names the file, the tensor or the key, what was expected and what was found.
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
