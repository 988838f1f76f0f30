//! A model of the hub in the cache: its files, and which commit a branch or tag stands for.

use std::collections::HashSet;
use std::path::PathBuf;

use attnscope_checkpoint::hub::{Address, Cache};
use attnscope_compute::error::{Error, Result};

use super::client::{Client, Refusal};
use super::place::Place;
use super::{blob, files};

/// Fetches what a model needs, and gives the directory of its snapshot.
///
/// # Errors
/// When the hub cannot be reached, refuses, or has no model of this name; when the disk cannot be written.
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
        // The shards of a model are known once its index is there.
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
