//! Which keys each query sees: the declared mask together with padding.

use std::ops::Range;
use std::sync::Arc;

use super::picked_keys::PickedKeys;
use super::spec::Mask;

/// Tokens that see all others and are seen by all others.
#[derive(Debug, Clone)]
struct GlobalTokens {
    /// [token]
    flags: Vec<bool>,
    first: usize,
    last: usize,
}

/// The visible keys of every query of one sequence.
#[derive(Debug, Clone)]
pub struct Visibility {
    pub n_queries: usize,
    pub n_keys: usize,
    mask: Mask,
    real_queries: Option<Vec<bool>>,
    real_keys: Option<Vec<bool>>,
    /// The keys of each query, if they are not given by `mask`.
    ranges: Option<Vec<Range<usize>>>,
    global: Option<GlobalTokens>,
    first_query: usize,
    picked: Option<Arc<PickedKeys>>,
}

impl Visibility {
    /// Self-attention over `n` positions; `real` marks tokens that are not padding.
    pub fn of_self(mask: Mask, n: usize, real: Option<&[bool]>) -> Self {
        // If no token is padding, the flags are dropped, so that the faster path is used.
        let real = real.filter(|r| r.contains(&false)).map(<[bool]>::to_vec);
        Self {
            n_queries: n,
            n_keys: n,
            mask,
            real_queries: real.clone(),
            real_keys: real,
            ranges: None,
            global: None,
            first_query: 0,
            picked: None,
        }
    }

    /// Cross-attention. Each sequence is given as its length and its flags of real tokens.
    pub fn of_cross(
        mask: Mask,
        queries: (usize, Option<&[bool]>),
        keys: (usize, Option<&[bool]>),
    ) -> Self {
        let padded =
            |real: Option<&[bool]>| real.filter(|r| r.contains(&false)).map(<[bool]>::to_vec);
        Self {
            n_queries: queries.0,
            n_keys: keys.0,
            mask,
            real_queries: padded(queries.1),
            real_keys: padded(keys.1),
            ranges: None,
            global: None,
            first_query: 0,
            picked: None,
        }
    }

    /// Lets some tokens see all others, and be seen by all others, as far as a causal mask allows. Ignored if the list's length
    /// differs from the number of queries or keys.
    #[must_use]
    pub fn with_global(self, flags: Vec<bool>) -> Self {
        let fits = [self.n_queries, self.n_keys] == [flags.len(); 2];
        let ends = [
            flags.iter().position(|is| *is),
            flags.iter().rposition(|is| *is),
        ];
        let global = match ends {
            [Some(first), Some(last)] if fits => Some(GlobalTokens { flags, first, last }),
            _ => None,
        };
        Self { global, ..self }
    }

    /// Whether a token is global: it sees all others.
    pub fn is_global(&self, token_idx: usize) -> bool {
        let global = self.global.as_ref();
        global.is_some_and(|global| global.flags[token_idx])
    }

    /// Indices of the global tokens.
    pub fn global_tokens(&self) -> Vec<usize> {
        let flags = self.global.iter().flat_map(|global| &global.flags);
        let indices = flags.enumerate();
        indices.filter_map(|(idx, is)| is.then_some(idx)).collect()
    }

    /// Consecutive blocks of at most `n` queries; in each, either all queries are global or none is.
    pub(super) fn blocks(&self, queries: Range<usize>, n: usize) -> Vec<Range<usize>> {
        let mut blocks = Vec::with_capacity(queries.len().div_ceil(n));
        let mut start = queries.start;
        while start < queries.end {
            let mut end = (start + n).min(queries.end);
            if let Some(global) = &self.global {
                let flags = &global.flags;
                let other = (start..end).find(|idx| flags[*idx] != flags[start]);
                end = other.unwrap_or(end);
            }
            blocks.push(start..end);
            start = end;
        }
        blocks
    }

    /// Gives each query a key range of its own instead of the mask's: for a prefix, or for queries that begin later than their
    /// keys. Ignored if the list's length differs from the number of queries.
    pub fn with_ranges(self, ranges: Vec<Range<usize>>) -> Self {
        let fits = ranges.len() == self.n_queries;
        let ranges = fits.then_some(ranges);
        Self { ranges, ..self }
    }

    /// Runs only the queries from `first_query` on; earlier ones are already processed, and their keys are still present. Indices
    /// do not change.
    #[must_use]
    pub fn with_first_query(self, first_query: usize) -> Self {
        Self {
            first_query: first_query.min(self.n_queries),
            ..self
        }
    }

    /// Adds the keys that an indexer picked among the visible ones.
    #[must_use]
    pub fn with_picked(self, picked: Option<PickedKeys>) -> Self {
        Self {
            picked: picked.map(Arc::new),
            ..self
        }
    }

    /// The keys that an indexer picked among the visible ones; all other methods ignore them.
    pub fn picked(&self) -> Option<&PickedKeys> {
        self.picked.as_deref()
    }

    /// The first query that runs.
    pub fn first_query(&self) -> usize {
        self.first_query
    }

    /// Number of queries that run.
    pub fn n_queries_to_run(&self) -> usize {
        self.n_queries - self.first_query
    }

    pub fn mask(&self) -> Mask {
        self.mask
    }

    /// The keys that the declared mask lets a query see, ignoring padding. The range has holes if global tokens lie outside the
    /// window.
    pub fn range(&self, query_idx: usize) -> Range<usize> {
        let near = self.near(query_idx);
        let Some(global) = &self.global else {
            return near;
        };
        let end = if self.mask.causal {
            query_idx + 1
        } else {
            self.n_keys
        };
        if global.flags[query_idx] {
            return 0..end;
        }
        let earlier = &global.flags[..end.min(global.last + 1)];
        let last = match earlier.iter().rposition(|is| *is) {
            Some(last) if near.is_empty() => return global.first..last + 1,
            Some(last) => last,
            None => return near,
        };
        near.start.min(global.first)..near.end.max(last + 1)
    }

    /// Whether some keys in a query's range may be hidden from it, ignoring padding.
    pub(super) fn has_holes(&self, query_idx: usize) -> bool {
        let is_among_globals = self.global.is_some() && !self.is_global(query_idx);
        is_among_globals || !self.hole(query_idx).is_empty()
    }

    /// The keys within the range of a query that it does not see: those dropped by a streaming cache, or tokens behind it before pools.
    pub(crate) fn hole(&self, query_idx: usize) -> Range<usize> {
        if self.mask.pools.is_some() {
            return self.before_pools(query_idx);
        }
        let (near, dropped) = (self.near(query_idx), self.dropped(query_idx));
        let hole = near.start.max(dropped.start)..near.end.min(dropped.end);
        if hole.is_empty() {
            // Within the range, however far a window or a cache lies beyond the last key.
            return near.start..near.start;
        }
        hole
    }

    /// The keys that a streaming cache dropped before a query.
    fn dropped(&self, query_idx: usize) -> Range<usize> {
        let first = self.first_real_key().unwrap_or(0);
        let streaming = self.mask.streaming;
        streaming.map_or(0..0, |kept| kept.dropped(query_idx, first))
    }

    /// The keys that the mask would let a query see if no token were global. The range may have a hole in the middle.
    fn near(&self, query_idx: usize) -> Range<usize> {
        let declared = self.declared(query_idx);
        let dropped = self.dropped(query_idx);
        if dropped.start > declared.start {
            return declared;
        }
        let start = declared.start.max(dropped.end).min(declared.end);
        start..declared.end
    }

    /// The keys that the mask would let a query see without global tokens and without a streaming cache.
    fn declared(&self, query_idx: usize) -> Range<usize> {
        if let Some(range) = self.ranges.as_ref().and_then(|all| all.get(query_idx)) {
            return range.start.min(self.n_keys)..range.end.min(self.n_keys);
        }
        let own = self.by_distance(query_idx);
        let Some(size) = self.mask.pools else {
            return own;
        };
        let n_pools = self.n_keys.saturating_sub(self.n_queries);
        match ((query_idx + 1) / size.max(1)).min(n_pools) {
            0 => own.start..own.end.min(self.n_queries),
            n => own.start..self.n_queries + n,
        }
    }

    /// The tokens behind those that a query sees, and before the pools that it sees.
    fn before_pools(&self, query_idx: usize) -> Range<usize> {
        let is_among = self.mask.pools.is_some() && self.ranges.is_none();
        let end = self.n_queries.min(self.n_keys);
        let own = self.by_distance(query_idx).end.min(end);
        if is_among && self.declared(query_idx).end > end {
            own..end
        } else {
            own..own
        }
    }

    /// The keys that causality and the window let a query see.
    fn by_distance(&self, query_idx: usize) -> Range<usize> {
        let mut start = 0;
        let mut end = self.n_keys;
        if self.mask.causal {
            end = end.min(query_idx + 1);
        }
        if let Some(window) = self.mask.window {
            let keys = window.keys(query_idx, self.first_real_key().unwrap_or(0));
            (start, end) = (keys.start, end.min(keys.end));
        }
        start.min(end)..end
    }

    /// One flag per key; `None` if no key is padding.
    pub fn real_keys(&self) -> Option<&[bool]> {
        self.real_keys.as_deref()
    }

    /// Whether a query is a real token, not padding.
    pub fn is_real_query(&self, query_idx: usize) -> bool {
        self.real_queries
            .as_ref()
            .is_none_or(|real| real[query_idx])
    }

    /// Whether a key is a real token, not padding.
    pub fn is_real_key(&self, key_idx: usize) -> bool {
        self.real_keys.as_ref().is_none_or(|real| real[key_idx])
    }

    /// Whether a query sees a key.
    pub fn sees(&self, query_idx: usize, key_idx: usize) -> bool {
        self.range(query_idx).contains(&key_idx) && self.is_seen(query_idx, key_idx)
    }

    /// Whether a query sees a key that is in its range.
    pub(super) fn is_seen(&self, query_idx: usize, key_idx: usize) -> bool {
        let is_near = self.global.as_ref().is_none_or(|global| {
            let is_either = global.flags[key_idx] || global.flags[query_idx];
            is_either || self.near(query_idx).contains(&key_idx)
        });
        let is_spared =
            self.global.is_some() && (self.is_global(key_idx) || self.is_global(query_idx));
        let is_kept = is_spared || !self.dropped(query_idx).contains(&key_idx);
        let is_behind =
            self.mask.pools.is_some() && self.before_pools(query_idx).contains(&key_idx);
        is_near && is_kept && !is_behind && self.is_real_key(key_idx)
    }

    /// The first key that is not padding.
    pub fn first_real_key(&self) -> Option<usize> {
        match &self.real_keys {
            Some(real) => real.iter().position(|is_real| *is_real),
            None => (self.n_keys > 0).then_some(0),
        }
    }

    /// The last real token before a query's own position, skipping padding; `None` for a padded query.
    pub fn previous_real_key(&self, query_idx: usize) -> Option<usize> {
        if !self.is_real_query(query_idx) {
            return None;
        }
        match &self.real_keys {
            Some(real) => {
                let before = &real[..query_idx.min(real.len())];
                before.iter().rposition(|is_real| *is_real)
            }
            None => query_idx
                .checked_sub(1)
                .filter(|key_idx| *key_idx < self.n_keys),
        }
    }

    /// Number of keys that a query sees.
    pub fn n_visible(&self, query_idx: usize) -> usize {
        let range = self.range(query_idx);
        if self.global.is_some() {
            return range
                .filter(|key_idx| self.is_seen(query_idx, *key_idx))
                .count();
        }
        let n_real = |keys: Range<usize>| match &self.real_keys {
            Some(real) => real[keys].iter().filter(|r| **r).count(),
            None => keys.len(),
        };
        n_real(range) - n_real(self.hole(query_idx))
    }
}
