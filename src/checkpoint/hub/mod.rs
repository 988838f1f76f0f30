//! Models by their names on the Hugging Face hub: found in the local cache, or fetched into it.

mod address;
mod cache;

use std::path::{Path, PathBuf};

pub use self::address::Address;
pub use self::cache::{Cache, blob_name, repository_of};

use attnscope_compute::error::{Error, Result};

/// Fetches a model into the cache, and gives the directory of its files.
pub type Fetch = fn(&Address, &Cache) -> Result<PathBuf>;

/// Brings a target that is no path here.
pub type Stage = fn(&Path) -> Result<PathBuf>;

/// Where names of the hub are looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hub {
    /// What fetches a model that is not in the cache; `None` where nothing may be fetched.
    pub fetch: Option<Fetch>,
    /// What brings a target of another kind of store here, or refuses it; a path comes back as it is.
    pub stage: Option<Stage>,
}

/// A target that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// A directory or a file.
    pub path: PathBuf,
    /// What the repository is called, where it is one.
    pub name: Option<String>,
}

impl Hub {
    /// Finds what a target stands for: a path that exists, or else a name of the hub.
    ///
    /// # Errors
    /// When it is neither, or is a directory of models of which one has to be named.
    pub fn find(&self, target: &Path) -> Result<Found> {
        if let Some(path) = file_url(target) {
            return of_path(&path);
        }
        if let Some(stage) = self.stage {
            let staged = stage(target)?;
            if staged != target {
                return of_path(&staged);
            }
        }
        // A dangling link is told as one, and not looked for elsewhere.
        if target.symlink_metadata().is_ok() {
            return of_path(target);
        }
        let missing = || {
            let problem =
                "no such file or directory; expected a checkpoint directory or a weight file";
            Error::file(target, problem)
        };
        let text = target.to_str().ok_or_else(missing)?;
        let Some(address) = Address::parse(text) else {
            return Err(missing());
        };
        let address = address.map_err(|problem| Error::file(target, problem))?;
        // A name in a directory that is there is a path with a slip.
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
            (_, Some(fetch), Some(cache)) => fetch(address, cache)?,
            (_, _, cache) => {
                let place = cache.as_ref().map_or(String::new(), |cache| {
                    format!(" {}", cache.root().display())
                });
                let problem = format!(
                    "no such file or directory, and no model of this name is in the cache{place}"
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

/// What a path stands for: a directory of the cache stands for a snapshot in it.
fn of_path(path: &Path) -> Result<Found> {
    if !path.exists() {
        let problem = match path.read_link() {
            Ok(to) => format!(
                "is a symbolic link to {}, which is missing; download or copy it again",
                to.display()
            ),
            Err(_) => "no such file or directory; expected a checkpoint directory or a weight file"
                .to_owned(),
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

/// The path of a `file://` address.
fn file_url(target: &Path) -> Option<PathBuf> {
    let rest = target.to_str()?.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    Some(PathBuf::from(address::decoded(rest)))
}
