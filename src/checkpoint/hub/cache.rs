//! The cache of `huggingface_hub`: `models--ORG--NAME/refs/REVISION` names a directory of `snapshots/`, whose files are
//! links to `blobs/`.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::{Address, Found};
use crate::counted::counted;

/// Prefix of the directory of a model.
const MODELS: &str = "models--";
const REFS: &str = "refs";
const SNAPSHOTS: &str = "snapshots";
const BLOBS: &str = "blobs";
/// Limit on the entries of a directory that are read.
const MOST_ENTRIES: usize = 10_000;
/// Limit on the models that a message lists.
const MOST_NAMED: usize = 12;
/// Limit on the bytes of a reference: a commit has 40 characters.
const LONGEST_REFERENCE: usize = 256;

/// A cache directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Finds the cache that the environment names, or the default one; `None` without a home directory.
    pub fn of_environment() -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let at = |value: std::ffi::OsString| expanded(PathBuf::from(value));
        let root = if let Some(root) = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE"))
        {
            at(root)
        } else if let Some(home) = set("HF_HOME") {
            at(home).join("hub")
        } else if let Some(cache) = set("XDG_CACHE_HOME") {
            at(cache).join("huggingface/hub")
        } else {
            PathBuf::from(set("HOME")?).join(".cache/huggingface/hub")
        };
        Some(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the directory of a model.
    pub fn repository(&self, address: &Address) -> PathBuf {
        self.root.join(address.directory())
    }

    /// Finds the snapshot of a model; `None` when this revision is not cached.
    ///
    /// # Errors
    /// When the reference cannot be read, or a file of the snapshot links out of the cache.
    pub fn find(&self, address: &Address) -> Result<Option<PathBuf>> {
        let repository = self.repository(address);
        let snapshot = snapshot_of(&repository, &address.revision)?;
        if let Some(snapshot) = &snapshot {
            check_inside(snapshot, &self.root)?;
        }
        Ok(snapshot)
    }
}

/// Expands a leading `~`.
fn expanded(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path,
    }
}

/// Finds the snapshot directory of a revision.
fn snapshot_of(repository: &Path, revision: &str) -> Result<Option<PathBuf>> {
    let reference = repository.join(REFS).join(revision);
    let commit = if reference.is_file() {
        let text = crate::read_text(&reference, LONGEST_REFERENCE)?;
        let commit = text.trim().to_owned();
        if !is_commit(&commit) {
            let problem = "expected the name of a commit, found something else";
            return Err(Error::file(&reference, problem));
        }
        commit
    } else if is_commit(revision) {
        revision.to_owned()
    } else {
        return Ok(None);
    };
    let snapshot = repository.join(SNAPSHOTS).join(commit);
    Ok(snapshot.is_dir().then_some(snapshot))
}

/// Whether a text is a commit hash, and so the name of a snapshot directory.
fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Refuses files of a snapshot that link out of the cache: whoever filled the cache could name any file.
fn check_inside(snapshot: &Path, root: &Path) -> Result<()> {
    let Ok(root) = root.canonicalize() else {
        return Ok(());
    };
    // The user may have replaced the directory of one model by a link to elsewhere.
    let repository = snapshot
        .ancestors()
        .nth(2)
        .and_then(|path| path.canonicalize().ok());
    for file in entries(snapshot) {
        let Ok(real) = file.canonicalize() else {
            continue;
        };
        let is_inside = real.starts_with(&root)
            || repository
                .as_ref()
                .is_some_and(|repository| real.starts_with(repository));
        if !is_inside {
            let problem = format!("is a link out of the cache, to {}", real.display());
            return Err(Error::file(&file, problem));
        }
    }
    Ok(())
}

/// Whether a snapshot has the requested file, or else all of its weights.
pub fn is_whole(snapshot: &Path, address: &Address) -> bool {
    if let Some(file) = &address.file {
        return snapshot.join(file).exists();
    }
    let names: Vec<PathBuf> = entries(snapshot);
    let has = |ends: &[&str]| {
        names.iter().any(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ends.iter().any(|end| name.ends_with(end)) && path.exists()
        })
    };
    let index = [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ]
    .iter()
    .map(|name| snapshot.join(name))
    .find(|path| path.exists());
    if let Some(index) = index {
        let shards = crate::shards::files_of(&index).unwrap_or_default();
        return shards.iter().all(|shard| snapshot.join(shard).exists());
    }
    has(&[".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt"])
}

/// Finds the snapshot of a model's cache directory; `None` for a directory that belongs to no cache.
///
/// # Errors
/// When the directory is a cache of several models, or holds no snapshot or several.
pub fn of_directory(path: &Path) -> Result<Option<Found>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = whole
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if let Some(repository) = name.strip_prefix(MODELS)
        && path.join(SNAPSHOTS).is_dir()
    {
        let mut snapshots = entries(&path.join(SNAPSHOTS));
        snapshots.retain(|path| path.is_dir());
        let snapshot = match (snapshot_of(path, "main")?, snapshots.as_slice()) {
            (Some(snapshot), _) => snapshot,
            (None, [only]) => only.clone(),
            (None, []) => return Err(Error::file(path, "holds no snapshot; download it again")),
            (None, many) => {
                let problem = format!(
                    "holds {} snapshots and no refs/main; name one of them",
                    many.len()
                );
                return Err(Error::file(path, problem));
            }
        };
        check_inside(&snapshot, path.parent().unwrap_or(path))?;
        return Ok(Some(Found {
            path: snapshot,
            name: Some(repository.replacen("--", "/", 1)),
        }));
    }
    let models: Vec<String> = entries(path)
        .iter()
        .filter(|path| path.join(SNAPSHOTS).is_dir())
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some(name.strip_prefix(MODELS)?.replacen("--", "/", 1))
        })
        .collect();
    if models.is_empty() {
        return Ok(None);
    }
    let more = models.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let problem = format!(
        "is a cache of {}; name one of them: {}{more}",
        counted(models.len(), "model"),
        models[..models.len().min(MOST_NAMED)].join(", ")
    );
    Err(Error::file(path, problem))
}

/// Name of the repository of a path inside a snapshot.
pub fn repository_of(path: &Path) -> Option<String> {
    let mut above = path.ancestors();
    let snapshots = above.find(|path| path.file_name().is_some_and(|name| name == SNAPSHOTS))?;
    let name = snapshots.parent()?.file_name()?.to_str()?;
    Some(name.strip_prefix(MODELS)?.replacen("--", "/", 1))
}

/// Finds the file of a snapshot that links to a blob: the blob's own name does not tell its format.
pub fn blob_name(path: &Path) -> Option<PathBuf> {
    let blobs = path
        .parent()
        .filter(|parent| parent.file_name().is_some_and(|n| n == BLOBS))?;
    let repository = blobs.parent()?;
    let blob = path.canonicalize().ok()?;
    let snapshots = entries(&repository.join(SNAPSHOTS));
    let files = snapshots.iter().flat_map(|snapshot| entries(snapshot));
    let mut named = files.filter(|file| file.canonicalize().is_ok_and(|real| real == blob));
    named.next()
}

/// Lists a directory in a fixed order.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = found
        .take(MOST_ENTRIES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A cache with one model whose files are links where the file system supports them.
    fn cache_with(files: &[&str]) -> (tempfile::TempDir, Cache) {
        let root = tempfile::tempdir().expect("a directory");
        let repository = root.path().join("models--org--name");
        let snapshot = repository.join(SNAPSHOTS).join(COMMIT);
        for directory in [
            &snapshot,
            &repository.join(BLOBS),
            &repository.join("refs/refs/pr"),
        ] {
            std::fs::create_dir_all(directory).expect("makes");
        }
        for (idx, file) in files.iter().enumerate() {
            let blob = repository.join(BLOBS).join(format!("b{idx}"));
            std::fs::write(&blob, "x").expect("writes");
            std::os::unix::fs::symlink(format!("../../blobs/b{idx}"), snapshot.join(file))
                .expect("links");
        }
        for reference in ["main", "refs/pr/1"] {
            std::fs::write(repository.join(REFS).join(reference), COMMIT).expect("writes");
        }
        let cache = Cache::at(root.path().to_path_buf());
        (root, cache)
    }

    fn address(text: &str) -> Address {
        Address::parse(text).expect(text).expect(text)
    }

    #[test]
    fn references_and_commits_lead_to_snapshots() {
        let (_root, cache) = cache_with(&["config.json", "model.safetensors"]);
        let expected = cache.root.join("models--org--name/snapshots").join(COMMIT);
        for text in [
            "org/name",
            "org/name@refs/pr/1",
            &format!("org/name@{COMMIT}"),
        ] {
            let found = cache.find(&address(text)).expect("reads");
            assert_eq!(found.as_ref(), Some(&expected), "{text}");
            assert!(is_whole(&expected, &address(text)));
        }
        for text in ["org/name@v2", "org/other", "name"] {
            assert_eq!(cache.find(&address(text)).expect("reads"), None, "{text}");
        }
        let found = of_directory(&cache.root.join("models--org--name"))
            .expect("reads")
            .expect("found");
        assert_eq!(found.path.canonicalize().ok(), expected.canonicalize().ok());
        assert_eq!(found.name.as_deref(), Some("org/name"));
        assert_eq!(repository_of(&expected).as_deref(), Some("org/name"));
        let blob = cache.root.join("models--org--name/blobs/b1");
        assert_eq!(blob_name(&blob), Some(expected.join("model.safetensors")));
        let said = of_directory(&cache.root).expect_err("many").to_string();
        assert!(said.contains("org/name"), "{said}");
    }

    #[test]
    fn a_snapshot_with_a_dangling_link_is_not_whole() {
        let (_root, cache) = cache_with(&["config.json", "model.safetensors"]);
        let snapshot = cache
            .find(&address("org/name"))
            .expect("reads")
            .expect("found");
        std::fs::remove_file(cache.root.join("models--org--name/blobs/b1")).expect("removes");
        assert!(!is_whole(&snapshot, &address("org/name")));
    }

    #[test]
    fn links_out_of_the_cache_and_references_that_are_no_commit_are_refused() {
        let (_root, cache) = cache_with(&["config.json"]);
        let snapshot = cache
            .find(&address("org/name"))
            .expect("reads")
            .expect("found");
        let elsewhere = tempfile::NamedTempFile::new().expect("a file");
        std::os::unix::fs::symlink(elsewhere.path(), snapshot.join("model.safetensors"))
            .expect("links");
        let said = cache
            .find(&address("org/name"))
            .expect_err("refused")
            .to_string();
        assert!(said.contains("link out of the cache"), "{said}");
        let reference = cache.root.join("models--org--name/refs/main");
        std::fs::write(reference, "../../../..").expect("writes");
        let said = cache
            .find(&address("org/name"))
            .expect_err("refused")
            .to_string();
        assert!(said.contains("name of a commit"), "{said}");
    }
}
