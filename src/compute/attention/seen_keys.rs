//! The keys that one query sees, for loops over many keys.

use std::ops::Range;

use super::mask::Visibility;

/// The keys that one query sees.
#[derive(Debug, Clone)]
pub struct SeenKeys<'a> {
    visibility: &'a Visibility,
    query_idx: usize,
    keys: Range<usize>,
    /// Whether no key of the range is hidden.
    sees_all: bool,
}

impl Visibility {
    /// The keys that a query sees.
    pub fn seen_by(&self, query_idx: usize) -> SeenKeys<'_> {
        let keys = self.range(query_idx);
        SeenKeys {
            sees_all: self.n_visible(query_idx) == keys.len(),
            visibility: self,
            query_idx,
            keys,
        }
    }
}

impl SeenKeys<'_> {
    /// Whether the query sees a key that is in its range.
    pub(super) fn has_in_range(&self, key_idx: usize) -> bool {
        self.sees_all || self.visibility.is_seen(self.query_idx, key_idx)
    }

    /// As [`Visibility::sees`].
    pub fn has(&self, key_idx: usize) -> bool {
        self.keys.contains(&key_idx) && self.has_in_range(key_idx)
    }
}
