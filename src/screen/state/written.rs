//! Files written by an export.

use std::path::PathBuf;

/// The files of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub svg: PathBuf,
    pub csv: PathBuf,
}
