//! What a batch consists of, written down so that a merge knows what is missing.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use attnscope_system::store::is_address;
use serde::{Deserialize, Serialize};

use super::digest;
use super::parts::{PLANS, put};
use crate::is_weights;

/// Version of the plan's file, and of how ids are made.
const VERSION: u32 = 1;
/// Letters of an id: 128 bits.
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
    /// Its whole path, or its name on the hub.
    pub target: String,
    /// Base name.
    pub checkpoint: String,
}

/// Some prompts that run together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Digest of the prompts.
    pub digest: String,
    /// Their ids.
    pub prompts: Vec<String>,
}

impl PlannedTarget {
    /// A target as it was named on the command line.
    pub fn of(target: &Path) -> Self {
        // A link keeps its own name: reports call the checkpoint by it.
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
        // As the program calls a checkpoint that is open: a file without its ending.
        let is_far_file = is_address(whole) && is_weights(whole);
        let name = if whole.is_file() || is_far_file {
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
    /// A plan of targets and chunks, in their order. `options` says how everything is run.
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

    /// The id of a unit: a digest of weights, the checkpoint's name, prompts, options and version.
    pub fn id(&self, weights: &str, target: &PlannedTarget, chunk: &Chunk) -> String {
        let parts = [&self.request, weights, &target.checkpoint, &chunk.digest];
        let mut id = digest::of_parts(parts.map(str::as_bytes));
        id.truncate(N_LETTERS);
        id
    }

    /// Writes the plan into the directory of a batch. Workers with the same plan write the same file.
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

    /// The plans of a batch, the one that was written last first.
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
    fn an_id_changes_with_all_that_it_is_about_and_with_nothing_else() {
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
    fn a_plan_is_one_file_however_often_it_is_written_and_reads_back() {
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
