//! The error type of the library: a one-line message that says what could not be read or computed, and that a user can act on.

use std::path::{Path, PathBuf};

/// Why something could not be read or computed. A model that merely behaves badly is never an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is missing, unreadable, or does not hold what it claims to hold.
    #[error("{}: {problem}", file.display())]
    File { file: PathBuf, problem: String },
    /// A file was written to, or replaced, while it was in use.
    #[error("{}: changed while it was read: {what}; run it again once it is written", file.display())]
    Changed { file: PathBuf, what: String },
    /// A tensor is missing, or is not what the architecture needs.
    #[error("{}: tensor {tensor}: {problem}", file.display())]
    Tensor {
        file: PathBuf,
        tensor: String,
        problem: String,
    },
    /// A configuration value is missing or invalid.
    #[error("{}: {key}: {problem}", file.display())]
    Config {
        file: PathBuf,
        key: String,
        problem: String,
    },
    /// The text, ids or mask do not fit each other or the model.
    #[error("{0}")]
    Prompt(String),
    /// A user setting for a checkpoint is unknown, or does not fit the checkpoint.
    #[error("{0}")]
    Setting(String),
    /// The requested device cannot be used.
    #[error("{0}")]
    Device(String),
    /// The work was stopped on request.
    #[error("cancelled")]
    Cancelled,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A problem with a whole file.
    pub fn file(file: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Self::File {
            file: file.as_ref().to_path_buf(),
            problem: problem.into(),
        }
    }

    /// A file that changed since it was opened.
    pub fn changed(file: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::Changed {
            file: file.as_ref().to_path_buf(),
            what: what.into(),
        }
    }

    /// A problem with one tensor of a file.
    pub fn tensor(
        file: impl AsRef<Path>,
        tensor: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Tensor {
            file: file.as_ref().to_path_buf(),
            tensor: tensor.into(),
            problem: problem.into(),
        }
    }

    /// A problem with one key of a configuration.
    pub fn config(
        file: impl AsRef<Path>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Config {
            file: file.as_ref().to_path_buf(),
            key: key.into(),
            problem: problem.into(),
        }
    }
}
