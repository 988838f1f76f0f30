//! Default prompts from a file next to a checkpoint: text of the kind that the model was trained on.

use std::path::{Path, PathBuf};

use attnscope_prompt::{PromptsBeside, Request};

use super::PromptArgs;
use super::prompts::PromptSet;

/// Most prompts used.
const MOST: usize = 32;

/// Prompts of a file next to a checkpoint.
pub struct DefaultPrompts {
    path: PathBuf,
    requests: Vec<(String, Request)>,
    /// Number of prompts in the file.
    n: usize,
}

impl DefaultPrompts {
    /// Reads the prompts in a checkpoint's directory, or next to its file; `None` if there is no such file, or it
    /// cannot be read as prompts.
    pub fn of(target: &Path, usual: &Request) -> Option<Self> {
        let directory = if target.is_dir() {
            target
        } else {
            target.parent()?
        };
        let found = PromptsBeside::of(directory, usual).unwrap_or_else(|e| {
            log::warn!("prompts beside the checkpoint are left aside: {e}");
            None
        });
        let PromptsBeside { path, mut requests } = found?;
        let n = requests.len();
        requests.truncate(MOST);
        Some(Self { path, requests, n })
    }

    /// Returns the prompts as a set.
    pub fn set(&self) -> PromptSet {
        PromptSet::of_file(&self.path, self.requests.clone())
    }

    /// Describes the default prompts for the user.
    pub fn told(&self) -> String {
        let (path, taken) = (self.path.display(), self.requests.len());
        match (taken, self.n) {
            (1, 1) => format!("no prompt given: judged on that of {path}"),
            (_, n) if n == taken => format!("no prompt given: judged on the {n} of {path}"),
            (_, n) => format!("no prompt given: judged on the first {taken} of the {n} of {path}"),
        }
    }

    /// Returns the prompts one by one.
    pub fn requests(self) -> impl Iterator<Item = Request> {
        self.requests.into_iter().map(|(_, request)| request)
    }
}

/// Returns the prompts that the screen offers for a checkpoint.
pub fn offered(checkpoint: Option<&Path>, prompt: &PromptArgs) -> Vec<Request> {
    let prompts = checkpoint.and_then(|path| DefaultPrompts::of(path, &prompt.usual()));
    prompts.map_or(Vec::new(), |prompts| prompts.requests().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_from_the_directory_of_a_checkpoint_and_a_damaged_file_is_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        let usual = Request::ids(Vec::new());
        let of = |path: &Path| {
            let prompts = DefaultPrompts::of(path, &usual)?;
            Some((prompts.told(), prompts.n))
        };
        assert_eq!(of(directory.path()), None);
        let lines: String = (0..40)
            .map(|n| format!("{{\"text\": \"a text {n}\"}}\n"))
            .collect();
        std::fs::write(directory.path().join("prompts.jsonl"), lines).expect("writes");
        let (told, n) = of(directory.path()).expect("prompts");
        assert_eq!(n, 40);
        assert!(told.contains("the first 32 of the 40 of"), "{told}");
        assert!(of(&directory.path().join("step-1.safetensors")).is_some());
        std::fs::write(directory.path().join("prompts.jsonl"), "no prompts").expect("writes");
        assert_eq!(of(directory.path()), None);
    }
}
