//! Lists the paths of a checkpoint without opening it: cached results about a checkpoint are valid until one of them changes.

use std::path::{Path, PathBuf};

use super::adapter::{self, AdapterConfig};
use super::hub::Hub;
use super::locate;
use super::open::Opening;
use super::weight_files::Weights;

impl Opening {
    /// Lists the target, the directories from it down to the weights, an adapter's base, and a tokenizer in another place.
    ///
    /// Downloads nothing. Paths that cannot be found are left out: opening the checkpoint reports them.
    pub fn places(&self) -> Vec<PathBuf> {
        let Some(path) = &self.path else {
            return Vec::new();
        };
        let cached = Self {
            hub: Hub { fetch: None },
            ..self.clone()
        };
        let target = cached
            .hub
            .find(path)
            .map_or(path.clone(), |found| found.path);
        let mut places = vec![target.clone()];
        let below = || locate::adapter_below(&target).ok().flatten();
        match adapter::directory_at(&target).or_else(below) {
            Some(directory) => {
                add(&mut places, &directory);
                let config = AdapterConfig::read(&directory).ok();
                let base = config.and_then(|config| cached.base_of(&config, &directory).ok());
                if let Some(base) = base {
                    add(&mut places, &base.path);
                    add_inside(&mut places, &base.path);
                }
            }
            None if self.weights.is_none() => add_inside(&mut places, &target),
            None => {}
        }
        if let Some(tokenizer) = self.tokenizer.as_deref().filter(|path| path.exists()) {
            add(&mut places, tokenizer);
        }
        places
    }
}

fn add(places: &mut Vec<PathBuf>, place: &Path) {
    if !places.iter().any(|known| known == place) {
        places.push(place.to_path_buf());
    }
}

/// Adds the directories from a directory down to its weights.
fn add_inside(places: &mut Vec<PathBuf>, directory: &Path) {
    if !directory.is_dir() {
        return;
    }
    if let Ok(located) = locate::weights_in(directory) {
        let inside = located.directory.ancestors();
        let inside = inside.take_while(|path| path.starts_with(directory));
        inside.for_each(|path| add(places, path));
        // Each rank may have a directory of its own.
        if let Weights::Slices(files) = &located.weights {
            let own = files.iter().filter_map(|file| file.parent());
            own.for_each(|path| add(places, path));
        }
    }
}
