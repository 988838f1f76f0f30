//! What names a live subject: a Python file with a name in it, or the socket of a process that serves one.

use std::fmt;
use std::path::{Path, PathBuf};

/// Target of a command that is no file of weights, but a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveTarget {
    /// `FILE.py:NAME` or `FILE.py:NAME(key=value, …)`: started in a process of its own.
    Python(String),
    /// `live:SOCKET`: a process that listens on a Unix socket already.
    Socket(PathBuf),
}

/// Begins the name of a socket.
const SOCKET: &str = "live:";
const FILE: &str = ".py:";

impl LiveTarget {
    /// Parses a target; `None` if it is not a live one. A file that exists under this very name is a file.
    pub fn parse(target: &Path) -> Option<Self> {
        let text = target.to_str()?;
        if let Some(socket) = text.strip_prefix(SOCKET) {
            return (!socket.is_empty()).then(|| Self::Socket(PathBuf::from(socket)));
        }
        let (_, name) = text.rsplit_once(FILE)?;
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        (is_name && !target.exists()).then(|| Self::Python(text.to_owned()))
    }

    /// The Python file that it names.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Python(text) => {
                let (stem, _) = text.rsplit_once(FILE)?;
                Some(PathBuf::from(format!("{stem}.py")))
            }
            Self::Socket(_) => None,
        }
    }
}

impl fmt::Display for LiveTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python(text) => f.write_str(text),
            Self::Socket(path) => write!(f, "{SOCKET}{}", path.display()),
        }
    }
}
