//! Prompts that outlive a session: one small file for each checkpoint in the state directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::known::Known;
use crate::signals::Temporary;

/// A larger file is not ours.
const LARGEST: u64 = 4 << 20;

/// Where the prompts of a checkpoint are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered(PathBuf);

impl Remembered {
    /// The file for a checkpoint; `None` where no state directory is known.
    pub fn of(checkpoint: Option<&Path>) -> Option<Self> {
        let named = match checkpoint {
            // One checkpoint has one file, however it is named.
            Some(path) => fs::canonicalize(path).ok()?,
            None => PathBuf::from("demo"),
        };
        let digest = Sha256::digest(named.as_os_str().as_encoded_bytes());
        let name: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let prompts = directory()?.join("prompts");
        Some(Self(prompts.join(name).with_extension("json")))
    }

    /// The prompts, the newest last; none where the file is not there or holds something else.
    pub fn read(&self) -> Vec<String> {
        let is_ours =
            fs::metadata(&self.0).is_ok_and(|about| about.is_file() && about.len() <= LARGEST);
        let text = is_ours.then(|| fs::read(&self.0).ok()).flatten();
        let prompts = text.and_then(|text| serde_json::from_slice(&text).ok());
        prompts.unwrap_or_default()
    }

    /// Puts a prompt last. Others may have written since it was read: what is there now is kept.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn add(&self, prompt: &str) -> io::Result<()> {
        let mut known = Known {
            prompts: self.read(),
            ..Known::default()
        };
        if !known.remember(prompt) {
            return Ok(());
        }
        let directory = self.0.parent().unwrap_or(Path::new("."));
        make_private(directory)?;
        let bytes = serde_json::to_vec(&known.prompts)?;
        let mut temporary = Temporary::new_in(directory)?;
        temporary.as_file_mut().write_all(&bytes)?;
        temporary.persist(&self.0, true)
    }
}

/// Prompts are a person's own: nobody else reads the directory.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// `$XDG_STATE_HOME/attnscope`, or `~/.local/state/attnscope`; `None` where neither is known.
fn directory() -> Option<PathBuf> {
    let of = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let base = of("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| of("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("attnscope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_back_and_a_broken_file_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let remembered = Remembered(directory.path().join("state/prompts/x.json"));
        assert!(remembered.read().is_empty());
        for prompt in ["one\ntwo", "three", "one\ntwo"] {
            remembered.add(prompt).expect("writes");
        }
        assert_eq!(remembered.read(), ["three", "one\ntwo"]);
        fs::write(&remembered.0, b"[1, 2").expect("writes");
        assert!(remembered.read().is_empty());
        remembered.add("four").expect("writes");
        assert_eq!(remembered.read(), ["four"]);
    }
}
