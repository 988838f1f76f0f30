//! The one error type of the library: what could not be read or computed, in one line a person can act on.

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
    /// A configuration value is missing or cannot be right.
    #[error("{}: {key}: {problem}", file.display())]
    Config {
        file: PathBuf,
        key: String,
        problem: String,
    },
    /// The text, the ids or the mask do not fit each other or the model.
    #[error("{0}")]
    Prompt(String),
    /// What a person says about a checkpoint is not known, or does not fit it.
    #[error("{0}")]
    Setting(String),
    /// The asked device cannot be used.
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

    /// A file that is no longer the one that was opened.
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
