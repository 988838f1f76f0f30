//! Models by their names on the Hugging Face hub: found in the local cache, or downloaded into it.

mod address;
mod cache;

use std::path::{Path, PathBuf};

pub use self::address::Address;
pub use self::cache::{Cache, blob_name, repository_of};

use attnscope_compute::error::{Error, Result};

use super::nearest::path_meant;

/// What a target may be, for messages.
const EXPECTED: &str = "expected a checkpoint directory or a weight file";

/// Downloads a model into the cache and returns the directory of its files.
pub type Fetch = fn(&Address, &Cache) -> Result<PathBuf>;

/// How to find models by their hub names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hub {
    /// Downloads models that are not in the cache; `None` if downloads are not allowed.
    pub fetch: Option<Fetch>,
}

/// A target that was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// A directory or a file.
    pub path: PathBuf,
    /// Name of the repository, if the path is in one.
    pub name: Option<String>,
}

impl Hub {
    /// Resolves a target: a path if it exists, else a hub name.
    ///
    /// # Errors
    /// When it is neither, or is a cache of several models.
    pub fn find(&self, target: &Path) -> Result<Found> {
        if let Some(path) = file_url(target) {
            return of_path(&path);
        }
        // A dangling link is reported as such instead of being tried as a hub name.
        if target.symlink_metadata().is_ok() {
            return of_path(target);
        }
        let missing = || {
            let meant = path_meant(target);
            Error::file(
                target,
                format!("no such file or directory{meant}; {EXPECTED}"),
            )
        };
        let text = target.to_str().ok_or_else(missing)?;
        let Some(address) = Address::parse(text) else {
            return Err(missing());
        };
        let address = address.map_err(|problem| Error::file(target, problem))?;
        // If the parent directory exists, this is a mistyped path.
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if !address.has_scheme && parent.is_some_and(Path::is_dir) {
            return Err(missing());
        }
        self.of_address(&address, target)
    }

    fn of_address(&self, address: &Address, target: &Path) -> Result<Found> {
        let cache = Cache::of_environment();
        let cached = cache.as_ref().map(|cache| cache.find(address));
        let cached = cached.transpose()?.flatten();
        let directory = match (cached, self.fetch, &cache) {
            (Some(directory), None, _) => directory,
            (Some(directory), Some(_), _) if cache::is_whole(&directory, address) => directory,
            (_, Some(fetch), Some(cache)) => {
                fetch(address, cache).map_err(|e| with_path_meant(e, target))?
            }
            (_, _, cache) => {
                let place = cache.as_ref().map_or(String::new(), |cache| {
                    format!(" {}", cache.root().display())
                });
                let problem = format!(
                    "no such file or directory{}, and no model of this name is in the cache{place}",
                    path_meant(target)
                );
                return Err(Error::file(target, problem));
            }
        };
        let path = match &address.file {
            Some(file) => directory.join(file),
            None => directory,
        };
        Ok(Found {
            path,
            name: Some(address.repository.clone()),
        })
    }
}

/// Adds to an error about a missing model the path that was probably meant.
fn with_path_meant(error: Error, target: &Path) -> Error {
    match error {
        Error::File { file, problem } => Error::File {
            file,
            problem: problem + &path_meant(target),
        },
        other => other,
    }
}

/// Whether an argument names a model: an address with a scheme, or a name that is in the cache.
pub fn is_known(argument: &str) -> bool {
    match Address::parse(argument) {
        Some(Ok(address)) => {
            address.has_scheme
                || Cache::of_environment()
                    .is_some_and(|cache| matches!(cache.find(&address), Ok(Some(_))))
        }
        Some(Err(_)) => argument.contains("://"),
        None => argument.starts_with("file://"),
    }
}

/// Resolves a path: a cache directory to its snapshot, a blob to its name in a snapshot.
fn of_path(path: &Path) -> Result<Found> {
    if !path.exists() {
        let problem = match path.read_link() {
            Ok(to) => format!(
                "is a symbolic link to {}, which is missing; download or copy it again",
                to.display()
            ),
            Err(_) => format!("no such file or directory{}; {EXPECTED}", path_meant(path)),
        };
        return Err(Error::file(path, problem));
    }
    if let Some(found) = cache::of_directory(path)? {
        return Ok(found);
    }
    if let Some(named) = blob_name(path) {
        return Ok(Found {
            name: repository_of(&named),
            path: named,
        });
    }
    Ok(Found {
        path: path.to_path_buf(),
        name: path.is_dir().then(|| repository_of(path)).flatten(),
    })
}

/// Extracts the path of a `file://` address.
fn file_url(target: &Path) -> Option<PathBuf> {
    let rest = target.to_str()?.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    Some(PathBuf::from(address::decoded(rest)))
}
