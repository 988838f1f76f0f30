//! Small maps of heads that were drawn before: a frame makes only those that are new.
//!
//! What a map shows is fixed by its run, its head and its size, because a layer's report does not change once it has arrived. So a frame that
//! takes a map from here looks as one that makes it anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use attnscope_spec::Stack;
use attnscope_worker::RunId;

use super::thumbnail::Thumbnail;

/// Pixels kept at most: 8 bytes each.
const MOST_PIXELS: usize = 4 << 20;

/// What fixes a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub run: RunId,
    /// The run that is subtracted.
    pub before: Option<RunId>,
    pub head: (Stack, usize, usize),
    /// The room for it, in pixels.
    pub most: (usize, usize),
}

#[derive(Debug, Default)]
struct Store {
    maps: BTreeMap<Key, Arc<Thumbnail>>,
    n_pixels: usize,
}

/// Maps that were drawn.
#[derive(Debug, Default)]
pub struct Drawn(Mutex<Store>);

impl Drawn {
    /// A map of before, or a new one.
    pub fn get(&self, key: Key, make: impl FnOnce() -> Thumbnail) -> Arc<Thumbnail> {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = store.maps.get(&key) {
            return known.clone();
        }
        let made = Arc::new(make());
        let n_pixels = made.width * made.height;
        if store.n_pixels + n_pixels > MOST_PIXELS {
            *store = Store::default();
        }
        store.n_pixels += n_pixels;
        store.maps.insert(key, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(run: RunId, head_idx: usize) -> Key {
        Key {
            run,
            before: None,
            head: (Stack::Only, 0, head_idx),
            most: (4, 4),
        }
    }

    fn picture(width: usize) -> Thumbnail {
        Thumbnail {
            width,
            height: 1,
            values: vec![Some(1.0); width],
        }
    }

    #[test]
    fn a_map_is_made_once_and_again_for_another_run_or_size() {
        let drawn = Drawn::default();
        let mut n_made = 0;
        let mut get = |key: Key| {
            drawn.get(key, || {
                n_made += 1;
                picture(2)
            })
        };
        let first = get(key(1, 0));
        assert_eq!(get(key(1, 0)), first);
        get(key(1, 1));
        get(key(2, 0));
        get(Key {
            most: (8, 4),
            ..key(1, 0)
        });
        get(Key {
            before: Some(2),
            ..key(1, 0)
        });
        get(key(1, 0));
        assert_eq!(n_made, 5);
    }

    #[test]
    fn the_memory_that_it_takes_has_an_end() {
        let drawn = Drawn::default();
        for head_idx in 0..6 {
            let most = (1 << 20, 1);
            let key = Key {
                most,
                ..key(1, head_idx)
            };
            drawn.get(key, || picture(1 << 20));
            let store = drawn.0.lock().expect("no panic");
            assert!(store.n_pixels <= MOST_PIXELS);
            assert_eq!(store.maps.len(), head_idx % 4 + 1);
        }
    }
}
