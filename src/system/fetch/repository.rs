//! A model of the hub and its directory in the cache: which of its files are needed, and what the hub says of each.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use attnscope_checkpoint::hub::{Address, Cache};
use attnscope_compute::error::{Error, Result};

use super::client::{About, Client, Refusal};
use super::files;

/// A model of the hub at one commit.
pub struct Repository {
    pub(super) client: Client,
    pub(super) address: Address,
    pub(super) commit: String,
    /// Its directory in the cache.
    pub(super) directory: PathBuf,
    /// Files that are needed; those that describe weights come first.
    wanted: Vec<String>,
    /// What the hub said of files, so that it is asked once.
    abouts: Mutex<BTreeMap<String, Arc<About>>>,
}

impl Repository {
    /// Asks the hub for the files of a model.
    ///
    /// # Errors
    /// When the hub cannot be reached, refuses, or has no model of this name or none that can be read.
    pub fn find(address: &Address, cache: &Cache) -> Result<Self> {
        let client = Client::of_environment();
        let refused = |refusal: Refusal| Error::file(&address.repository, refusal.words(address));
        let listing = client.listing(address).map_err(refused)?;
        let wanted = files::wanted(&listing.files, address.file.as_deref());
        let wanted = wanted.map_err(|problem| Error::file(&address.repository, problem))?;
        Ok(Self {
            client,
            address: address.clone(),
            commit: listing.commit,
            directory: cache.repository(address),
            wanted,
            abouts: Mutex::default(),
        })
    }

    /// Downloads the files that describe the weights. Returns their names, and those of the weights.
    ///
    /// # Errors
    /// As for [`Repository::fetch`].
    pub(super) fn describe(&self) -> Result<(Vec<String>, Vec<String>)> {
        let is_description = |file: &&String| files::most_bytes(file).is_some();
        let (descriptions, mut weights): (Vec<&String>, Vec<&String>) =
            self.wanted.iter().partition(is_description);
        let mut shards = Vec::new();
        for file in &descriptions {
            let snapshot = self.download(file)?;
            // The shards of a model are known once its index is there.
            if file.ends_with(".index.json") {
                shards.extend(files::shards_of(&snapshot.join(file))?);
            }
        }
        weights.extend(&shards);
        let mut known = HashSet::new();
        weights.retain(|file| known.insert(*file));
        let owned = |files: Vec<&String>| files.into_iter().cloned().collect();
        Ok((owned(descriptions), owned(weights)))
    }

    /// Downloads what the model needs and is not in the cache yet; returns the directory of its snapshot.
    ///
    /// # Errors
    /// When the hub refuses, the bytes do not match its digest, or the disk cannot be written.
    pub fn fetch(&self) -> Result<PathBuf> {
        let (mut files, weights) = self.describe()?;
        files.extend(weights);
        let mut snapshot = None;
        for file in &files {
            snapshot = Some(self.download(file)?);
        }
        let Some(snapshot) = snapshot else {
            let problem = "holds no files of a model";
            return Err(Error::file(&self.address.repository, problem));
        };
        self.write_reference()?;
        Ok(snapshot)
    }

    /// Returns what the hub says of a file.
    pub(super) fn about(&self, file: &str) -> Result<Arc<About>> {
        let abouts = || self.abouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(about) = abouts().get(file) {
            return Ok(about.clone());
        }
        let about = self.client.about(&self.address, &self.commit, file);
        let about =
            about.map_err(|refusal| Error::file(self.name(file), refusal.words(&self.address)))?;
        let about = Arc::new(about);
        abouts().insert(file.to_owned(), about.clone());
        Ok(about)
    }

    /// Name of a file in messages.
    pub(super) fn name(&self, file: &str) -> String {
        format!("{}/{file}", self.address.repository)
    }

    /// Notes which commit a branch or tag stands for.
    fn write_reference(&self) -> Result<()> {
        if self.address.revision == self.commit {
            return Ok(());
        }
        let path = self.directory.join("refs").join(&self.address.revision);
        make_directory_of(&path)?;
        write_whole(&path, self.commit.as_bytes())
    }
}

/// Makes the directory that a file is to lie in.
pub fn make_directory_of(path: &Path) -> Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be made ({e})")))
}

/// Writes a short file under a temporary name, and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| Error::file(path, format!("cannot be written ({e})")))
}
