//! A hub model in the cache: its files, and the commits of branches and tags.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::hub::{Address, Cache};
use attnscope_compute::error::{Error, Result};

use super::client::{Client, Refusal};
use super::{blob, files};

/// Downloads the files of a model; returns the directory of its snapshot.
///
/// # Errors
/// When the hub cannot be reached, refuses, or has no such model; when the disk cannot be written.
pub fn fetch(address: &Address, cache: &Cache) -> Result<PathBuf> {
    let client = Client::of_environment();
    let refused = |refusal: Refusal| Error::file(&address.repository, refusal.words(address));
    let listing = client.listing(address).map_err(refused)?;
    let wanted = files::wanted(&listing.files, address.file.as_deref());
    let wanted = wanted.map_err(|problem| Error::file(&address.repository, problem))?;
    let place = Place {
        repository: cache.repository(address),
    };
    let mut snapshot = None;
    let mut queue = wanted;
    let mut at = 0;
    while let Some(file) = queue.get(at).cloned() {
        at += 1;
        let directory = blob::fetch(&client, &place, address, &listing.commit, &file)?;
        // The shards are known once the index has been downloaded.
        if file.ends_with(".index.json") {
            let named = files::shards_of(&directory.join(&file))?;
            let mut known: HashSet<String> = queue.iter().cloned().collect();
            queue.extend(named.into_iter().filter(|name| known.insert(name.clone())));
        }
        snapshot = Some(directory);
    }
    let Some(snapshot) = snapshot else {
        return Err(Error::file(
            &address.repository,
            "holds no files of a model",
        ));
    };
    place.write_reference(address, &listing.commit)?;
    Ok(snapshot)
}

/// Location of a model in the cache.
pub struct Place {
    pub repository: PathBuf,
}

impl Place {
    /// Stores the commit of a branch or tag.
    fn write_reference(&self, address: &Address, commit: &str) -> Result<()> {
        if address.revision == commit {
            return Ok(());
        }
        let path = self.repository.join("refs").join(&address.revision);
        make_directory_of(&path)?;
        write_whole(&path, commit.as_bytes())
    }
}

pub fn make_directory_of(path: &Path) -> Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be made ({e})")))
}

/// Writes a short file under a temporary name, then renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| Error::file(path, format!("cannot be written ({e})")))
}
