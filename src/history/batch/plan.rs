//! The plan of a batch, written to a file so that a merge knows what is missing.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::digest;
use super::parts::PLANS;
use super::whole_files::put;

/// Version of the plan's file and of the ids.
const VERSION: u32 = 1;
/// Hexadecimal digits of an id: 128 bits.
const N_LETTERS: usize = 32;

/// Every unit of a batch: each checkpoint with each chunk of prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    /// Digest of options and version.
    pub request: String,
    pub targets: Vec<PlannedTarget>,
    pub chunks: Vec<Chunk>,
}

/// A checkpoint of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTarget {
    /// Absolute path, or name on the hub.
    pub target: String,
    /// Base name.
    pub checkpoint: String,
}

/// Prompts that run together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Digest of the prompts.
    pub digest: String,
    /// Ids of the prompts.
    pub prompts: Vec<String>,
}

impl PlannedTarget {
    /// Makes the plan's entry for a target named on the command line.
    pub fn of(target: &Path) -> Self {
        // Keep the name of a symbolic link: reports use it for the checkpoint.
        let directory = match target.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => target,
        };
        let whole = match (target.exists(), target.file_name()) {
            (true, Some(name)) => directory
                .canonicalize()
                .map(|directory| directory.join(name)),
            _ => target.canonicalize(),
        };
        let whole = whole.as_deref().unwrap_or(target);
        // The same name as an open checkpoint has: a file without its extension.
        let name = if whole.is_file() {
            whole.file_stem()
        } else {
            whole.file_name()
        };
        let name = name.unwrap_or(whole.as_os_str());
        Self {
            target: whole.to_string_lossy().into_owned(),
            checkpoint: name.to_string_lossy().into_owned(),
        }
    }
}

impl Plan {
    /// Makes a plan of targets and chunks, in their order. `options` are all options of the run.
    pub fn new(targets: Vec<PlannedTarget>, chunks: Vec<Chunk>, options: &[u8]) -> Self {
        let version = VERSION.to_le_bytes();
        let parts = [&version, env!("CARGO_PKG_VERSION").as_bytes(), options];
        Self {
            version: VERSION,
            request: digest::of_parts(parts),
            targets,
            chunks,
        }
    }

    /// Returns the id of a unit: a digest of weights, checkpoint name, prompts, options and version.
    pub fn id(&self, weights: &str, target: &PlannedTarget, chunk: &Chunk) -> String {
        let parts = [&self.request, weights, &target.checkpoint, &chunk.digest];
        let mut id = digest::of_parts(parts.map(str::as_bytes));
        id.truncate(N_LETTERS);
        id
    }

    /// Writes the plan into a batch directory. Workers with the same plan write the same file.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let content = serde_json::to_vec(self)
            .map_err(|e| Error::file(directory, format!("a plan that cannot be written ({e})")))?;
        let mut name = digest::of_bytes(&content);
        name.truncate(N_LETTERS);
        put(&directory.join(PLANS), &format!("{name}.json"), &content)
    }

    /// Reads the plans of a batch, the last one written first.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory.join(PLANS))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let text = read_text(&path, DOCUMENT)?;
            let plan: Self = serde_json::from_str(&text)
                .map_err(|e| Error::file(&path, format!("expected the plan of a batch: {e}")))?;
            if plan.version != VERSION {
                let problem = format!(
                    "expected a plan of version {VERSION}, found {}",
                    plan.version
                );
                return Err(Error::file(&path, problem));
            }
            let written = entry.metadata().and_then(|about| about.modified());
            found.push((written.unwrap_or(SystemTime::UNIX_EPOCH), path, plan));
        }
        found.sort_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        Ok(found.into_iter().map(|(_, _, plan)| plan).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(names: &[&str], prompts: &str, options: &[u8]) -> Plan {
        let targets = names.iter().map(|name| PlannedTarget {
            target: format!("/runs/{name}"),
            checkpoint: (*name).to_owned(),
        });
        let chunk = Chunk {
            digest: digest::of_bytes(prompts.as_bytes()),
            prompts: vec![prompts.to_owned()],
        };
        Plan::new(targets.collect(), vec![chunk], options)
    }

    #[test]
    fn an_id_depends_on_weights_name_prompts_and_options_only() {
        let first =
            |plan: &Plan, weights: &str| plan.id(weights, &plan.targets[0], &plan.chunks[0]);
        let id = first(&plan(&["a", "b"], "p", b"o"), "w");
        assert_eq!(id, first(&plan(&["a"], "p", b"o"), "w"));
        for other in [
            first(&plan(&["a"], "p", b"o"), "w2"),
            first(&plan(&["b"], "p", b"o"), "w"),
            first(&plan(&["a"], "q", b"o"), "w"),
            first(&plan(&["a"], "p", b"o2"), "w"),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn writing_a_plan_again_gives_one_file_that_reads_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let one = plan(&["a", "b"], "p", b"o");
        for _ in 0..2 {
            one.write(directory.path()).expect("writes");
        }
        assert_eq!(Plan::read_all(directory.path()).expect("reads"), [one]);
        let other = plan(&["c"], "p", b"o");
        other.write(directory.path()).expect("writes");
        assert_eq!(Plan::read_all(directory.path()).expect("reads").len(), 2);
    }
}
