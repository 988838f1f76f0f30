//! Which keys the queries of a layer attend to, and the mask inferred from that.

use super::shape::{Direction, Shape};

/// Cells of one layer that are nonzero in any of its heads.
#[derive(Debug, Clone)]
pub struct Support {
    pub n_queries: usize,
    pub n_keys: usize,
    /// [query, key]
    cells: Vec<bool>,
    /// Queries with a row that is not uniform over all keys in some head.
    has_row: Vec<bool>,
    /// Queries with a row that is uniform over all keys in some head, as a finite mask value produces.
    has_even_row: Vec<bool>,
    /// Queries whose scores are all hidden in some head.
    is_hidden_row: Vec<bool>,
}

/// Shorter rows do not count as uniform.
const SMALLEST_EVEN: usize = 3;
/// A row whose cells differ by less than this share counts as uniform.
const EVEN: f32 = 1e-3;
/// Share of rows, and of cells, that must match a shape.
const MOST: f64 = 0.8;

impl Support {
    pub fn new(n_queries: usize, n_keys: usize) -> Self {
        Self {
            n_queries,
            n_keys,
            cells: vec![false; n_queries * n_keys],
            has_row: vec![false; n_queries],
            has_even_row: vec![false; n_queries],
            is_hidden_row: vec![false; n_queries],
        }
    }

    /// Adds one head. Where scores contain their mask, they decide which cells are hidden: a probability may have been rounded to
    /// 0. // pattern and scores: [query, key]
    pub fn add(&mut self, pattern: &[f32], scores: Option<&[f32]>) {
        let n_keys = self.n_keys;
        let is_hidden = |score: f32| score == f32::NEG_INFINITY;
        let masked = scores.filter(|scores| {
            let mut cells = scores.iter().zip(pattern);
            scores.iter().any(|score| is_hidden(*score))
                && cells.all(|(score, p)| !is_hidden(*score) || *p == 0.0 || p.is_nan())
        });
        for (query_idx, row) in pattern.chunks(n_keys).enumerate() {
            if row.iter().any(|p| p.is_nan()) || row.iter().all(|p| *p == 0.0) {
                continue;
            }
            let span = query_idx * n_keys..(query_idx + 1) * n_keys;
            let all_hidden =
                scores.is_some_and(|scores| scores[span.clone()].iter().all(|s| is_hidden(*s)));
            self.is_hidden_row[query_idx] |= all_hidden;
            if is_even(row) {
                self.has_even_row[query_idx] = true;
                continue;
            }
            self.has_row[query_idx] = true;
            let scores = masked.map(|scores| &scores[span.clone()]);
            for (key_idx, cell) in self.cells[span].iter_mut().enumerate() {
                *cell |= row[key_idx] != 0.0
                    || scores.is_some_and(|scores| scores[key_idx] > f32::NEG_INFINITY);
            }
        }
    }

    /// Whether heads have exact zeros in cells that other heads use: zeros that no shared mask made. Cannot be determined from
    /// one head.
    pub fn has_own_zeros(&self, heads: &[&[f32]]) -> bool {
        let n_seen = self.cells.iter().filter(|cell| **cell).count();
        let own = |head: &&&[f32]| {
            let cells = self.cells.iter().zip(head.iter());
            let n_own = cells.filter(|(cell, p)| **cell && **p == 0.0).count();
            20 * n_own > n_seen
        };
        heads.len() < 2 || heads.iter().any(|head| own(&head))
    }

    /// Counts rows that are uniform over all keys as attention where they are no sign of a mask: if most rows are, and in the
    /// last row under a causal mask.
    fn settle(&mut self, is_self: bool) {
        if is_self && self.last_row_is_due() {
            self.see_all(self.n_queries - 1);
        }
        let n_even = |all: &Self| {
            let rows = all.has_even_row.iter().zip(&all.has_row);
            rows.filter(|(even, other)| **even && !**other).count()
        };
        if 2 * n_even(self) < self.n_queries {
            return;
        }
        for query_idx in 0..self.n_queries {
            if self.has_even_row[query_idx] && !self.has_row[query_idx] {
                self.see_all(query_idx);
            }
        }
    }

    fn see_all(&mut self, query_idx: usize) {
        self.has_row[query_idx] = true;
        self.cells[query_idx * self.n_keys..(query_idx + 1) * self.n_keys].fill(true);
    }

    /// Whether the last row is uniform over all keys as a causal mask lets it be: the row before it sees every key but the last,
    /// and no row sees a later key. Without this row, the last key would look hidden from all queries.
    fn last_row_is_due(&self) -> bool {
        let (n_queries, n_keys) = (self.n_queries, self.n_keys);
        let Some(base) = n_keys.checked_sub(n_queries).filter(|_| n_queries >= 2) else {
            return false;
        };
        let last = n_queries - 1;
        let is_even = self.has_even_row[last] && !self.has_row[last] && !self.is_hidden_row[last];
        let rows = || (0..last).filter(|query_idx| self.has_row[*query_idx]);
        let never_ahead = |query_idx: usize| {
            let mut later = query_idx + base + 1..n_keys;
            later.all(|key_idx| !self.sees(query_idx, key_idx))
        };
        let sees_rest = |query_idx: usize| (0..n_keys - 1).all(|key| self.sees(query_idx, key));
        is_even
            && rows()
                .next_back()
                .is_some_and(|idx| idx + 1 == last && sees_rest(idx))
            && rows().all(never_ahead)
    }

    pub fn sees(&self, query_idx: usize, key_idx: usize) -> bool {
        self.cells[query_idx * self.n_keys + key_idx]
    }

    /// Infers the mask from the rows. `is_real`: whether a position is a token, if known. `is_self`: queries and keys are the
    /// same tokens.
    pub fn shape(mut self, is_real: &dyn Fn(usize) -> Option<bool>, is_self: bool) -> Shape {
        self.settle(is_self);
        let is_square = self.n_queries == self.n_keys && is_self;
        let is_known = is_square && (0..self.n_keys).any(|idx| is_real(idx) == Some(false));
        let usable = |query_idx: &usize| {
            self.has_row[*query_idx] && (!is_square || is_real(*query_idx) != Some(false))
        };
        let rows: Vec<usize> = (0..self.n_queries).filter(usable).collect();
        let ends = |query_idx: usize| {
            let row = &self.cells[query_idx * self.n_keys..(query_idx + 1) * self.n_keys];
            let first = row.iter().position(|cell| *cell).unwrap_or(0);
            let last = row.iter().rposition(|cell| *cell).unwrap_or(0);
            (first, last)
        };
        let mut fit = Fit {
            support: &self,
            ends: (0..self.n_queries).map(ends).collect(),
            base: if is_self {
                self.n_keys.saturating_sub(self.n_queries)
            } else {
                0
            },
            is_self,
            rows,
        };
        let mut pads = Vec::new();
        if is_square && !is_known {
            pads = fit.take_pads();
        }
        fit.shape(pads)
    }
}

/// Whether a row is uniform over every key.
pub(super) fn is_even(row: &[f32]) -> bool {
    let first = row.first().copied().unwrap_or(0.0);
    row.len() >= SMALLEST_EVEN
        && first > 0.0
        && row.iter().all(|p| (p - first).abs() <= EVEN * first)
}

/// The rows used to infer the mask.
struct Fit<'a> {
    support: &'a Support,
    /// First and last key of every query.
    ends: Vec<(usize, usize)>,
    /// Offset of the first query from the first key.
    base: usize,
    is_self: bool,
    rows: Vec<usize>,
}

impl Fit<'_> {
    fn keys(&self, query_idx: usize) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let keys = 0..self.support.n_keys;
        keys.filter(move |key_idx| self.support.sees(query_idx, *key_idx))
    }

    fn first(&self, query_idx: usize) -> usize {
        self.ends[query_idx].0
    }

    fn last(&self, query_idx: usize) -> usize {
        self.ends[query_idx].1
    }

    /// Removes and returns positions that look like padding: at the left, keys that no later query sees and whose own rows are
    /// zero, have one cell, or are uniform; at the right, keys that no query sees.
    fn take_pads(&mut self) -> Vec<usize> {
        let n = self.support.n_keys;
        let is_garbage = |query_idx: &usize| {
            let (mut n_seen, mut sees_own) = (0, false);
            for key_idx in self.keys(*query_idx) {
                n_seen += 1;
                sees_own |= key_idx == *query_idx;
            }
            let is_alone = n_seen == 1 && sees_own;
            is_alone || n_seen == n || !self.rows.contains(query_idx)
        };
        let n_garbage = (0..n).take_while(is_garbage).count();
        let is_left = |n_pads: &usize| {
            let mut later = self.rows.iter().filter(|idx| *idx >= n_pads);
            let n_later = later.clone().count();
            n_later >= 2 && later.all(|idx| self.first(*idx) >= *n_pads)
        };
        // A row or two that see only themselves occur with a narrow causal window as well.
        let left = (1..=n_garbage.min(n.saturating_sub(2)))
            .rev()
            .find(|n_pads| is_left(n_pads) && self.sees_back(*n_pads));
        let mut pads: Vec<usize> = (0..left.unwrap_or(0)).collect();
        let last = self.rows.iter().map(|idx| self.last(*idx)).max();
        if let Some(last) = last.filter(|last| last + 1 < n) {
            // A mask that hides the query's own position leaves the last key unseen as well.
            let own = (0..=last).filter(|idx| self.rows.contains(idx));
            if own.clone().count() >= 2
                && own
                    .clone()
                    .filter(|idx| self.support.sees(*idx, *idx))
                    .count()
                    * 2
                    > own.count()
            {
                pads.extend(last + 1..n);
            }
        }
        self.rows.retain(|idx| !pads.contains(idx));
        pads
    }

    /// Whether rows after the assumed padding look back to the first real key, which confirms where the text begins.
    fn sees_back(&self, n_pads: usize) -> bool {
        let later = self.rows.iter().filter(|idx| **idx > n_pads);
        let (mut n, mut n_back) = (0, 0);
        for idx in later {
            n += 1;
            n_back += usize::from(self.support.sees(*idx, n_pads));
        }
        2 * n_back > n
    }

    fn shape(&self, pads: Vec<usize>) -> Shape {
        let (n_queries, n_keys) = (self.support.n_queries, self.support.n_keys);
        let ends: Vec<(usize, usize)> = self
            .rows
            .iter()
            .map(|idx| (self.first(*idx), self.last(*idx)))
            .collect();
        let lowest = ends.iter().map(|(first, _)| *first).min().unwrap_or(0);
        let highest = ends.iter().map(|(_, last)| *last).max().unwrap_or(0);
        let direction = self.direction(&ends, lowest, highest);
        let documents = self.documents(&ends, direction);
        let window = self.window(&ends, lowest, direction, &documents);
        let direction = match (direction, window) {
            // As far forward as back: a symmetric window.
            (Direction::Causal(ahead), Some(width))
                if ahead > 0 && width == ahead.unsigned_abs() + 1 =>
            {
                Direction::Both
            }
            (Direction::Unclear, _) if !documents.is_empty() => Direction::Both,
            (direction, _) => direction,
        };
        let is_pad = |key_idx: &usize| pads.contains(key_idx);
        let is_seen = |key_idx: usize| self.rows.iter().any(|idx| self.support.sees(*idx, key_idx));
        let unseen = (0..n_keys).filter(|idx| !is_pad(idx) && !is_seen(*idx));
        let unseen: Vec<usize> = unseen.collect();
        let never_ahead = !self.rows.is_empty()
            && self
                .rows
                .iter()
                .zip(&ends)
                .all(|(idx, (_, last))| *last <= idx + self.base);
        // Rows that give all weight to the first key are a sink, not a mask.
        let is_filled = |idx: &usize| self.keys(*idx).count() as f64 >= MOST * (idx + 1) as f64;
        let is_top_left = self.is_self
            && n_queries < n_keys
            && !self.rows.is_empty()
            && self.rows.iter().all(|idx| self.last(*idx) == *idx)
            && self.rows.iter().all(is_filled);
        let mut shape = Shape {
            n_queries,
            n_keys,
            direction,
            window,
            documents,
            pads,
            unseen,
            sees_own: None,
            base: self.base,
            is_top_left,
            never_ahead,
            is_tight: false,
        };
        shape.is_tight = self.is_tight(&shape, lowest, highest);
        shape.sees_own = self.sees_own();
        shape
    }

    fn direction(&self, ends: &[(usize, usize)], lowest: usize, highest: usize) -> Direction {
        let rows = || self.rows.iter().map(|idx| *idx as isize).zip(ends);
        let share = |n: usize, of: usize| of > 0 && n as f64 >= MOST * of as f64;
        let n_rows = self.rows.len();
        let n_to_end = ends.iter().filter(|(_, last)| *last == highest).count();
        // Rows that end before the last key show how far forward the mask reaches.
        let ahead = mode(
            rows()
                .filter(|(_, (_, last))| *last < highest)
                .map(|(idx, (_, last))| *last as isize - idx),
        );
        if let Some((ahead, n_alike)) = ahead {
            let never_beyond = rows().all(|(idx, (_, last))| *last as isize - idx <= ahead);
            let inside = rows().filter(|(idx, _)| idx + ahead < highest as isize);
            if never_beyond && n_alike >= 2 && share(n_alike, inside.count()) {
                return Direction::Causal(ahead - self.base as isize);
            }
        }
        if self.base == 0 && n_rows >= 4 {
            let prefix = ends.first().map_or(0, |(_, last)| last + 1);
            let n_alike =
                rows().filter(|(idx, (_, last))| *last as isize == (*idx).max(prefix as isize - 1));
            let n_after = rows().filter(|(idx, _)| *idx >= prefix as isize).count();
            if prefix >= 2 && n_after >= 2 && n_alike.count() == n_rows {
                return Direction::Prefix(prefix);
            }
        }
        if share(n_to_end, n_rows) {
            let back = mode(
                rows()
                    .filter(|(_, (first, _))| *first > lowest)
                    .map(|(idx, (first, _))| *first as isize - idx),
            );
            let is_inverted = back.is_some_and(|(back, n_alike)| {
                (back == 0 || back == 1) && n_alike >= 2 && share(n_alike + 1, n_rows)
            });
            return if is_inverted {
                Direction::Inverted
            } else {
                Direction::Both
            };
        }
        Direction::Unclear
    }

    /// Blocks along the diagonal: all rows of a block begin at the same key, the block's first position.
    fn documents(&self, ends: &[(usize, usize)], direction: Direction) -> Vec<usize> {
        let is_own = self.is_self && self.base == 0;
        let may = matches!(
            direction,
            Direction::Causal(0) | Direction::Unclear | Direction::Both
        );
        if !is_own || !may {
            return Vec::new();
        }
        let rows = || self.rows.iter().copied().zip(ends);
        let starts: Vec<usize> = rows()
            .filter(|(idx, (first, _))| first == idx)
            .map(|(idx, _)| idx)
            .collect();
        let block = |idx: usize| starts.partition_point(|start| *start <= idx).checked_sub(1);
        let fits = rows().all(|(idx, (first, last))| {
            let Some(block_idx) = block(idx) else {
                return false;
            };
            let end = starts.get(block_idx + 1).copied();
            let ends_well = direction == Direction::Causal(0) || end.is_none_or(|end| *last < end);
            *first == starts[block_idx] && ends_well
        });
        if fits && starts.len() >= 2 && 2 * starts.len() <= self.rows.len() {
            starts
        } else {
            Vec::new()
        }
    }

    fn window(
        &self,
        ends: &[(usize, usize)],
        lowest: usize,
        direction: Direction,
        documents: &[usize],
    ) -> Option<usize> {
        if !documents.is_empty() || direction == Direction::Inverted {
            return None;
        }
        let rows = || self.rows.iter().copied().zip(ends);
        let back = |idx: usize, first: usize| (idx + self.base).saturating_sub(first);
        let (most, n_alike) = mode(
            rows()
                .filter(|(_, (first, _))| *first > lowest)
                .map(|(idx, (first, _))| back(idx, *first) as isize),
        )?;
        let most = most.unsigned_abs();
        let never_beyond = rows().all(|(idx, (first, _))| back(idx, *first) <= most);
        let inside = rows().filter(|(idx, _)| idx + self.base > lowest + most);
        let is_window =
            never_beyond && n_alike >= 2 && n_alike as f64 >= MOST * inside.count() as f64;
        is_window.then_some(most + 1)
    }

    fn is_tight(&self, shape: &Shape, lowest: usize, highest: usize) -> bool {
        let (mut n_expected, mut n_seen) = (0usize, 0usize);
        for query_idx in &self.rows {
            let range = shape.range_of(*query_idx);
            let range = range.start.max(lowest)..range.end.min(highest + 1);
            n_expected += range.len();
            n_seen += range
                .filter(|key_idx| self.support.sees(*query_idx, *key_idx))
                .count();
        }
        // If all queries attend to one or two keys, that shows attention, not a mask.
        let is_broad = shape.direction != Direction::Both || 2 * shape.unseen.len() <= shape.n_keys;
        is_broad && n_expected > 0 && n_seen as f64 >= MOST * n_expected as f64
    }

    /// Whether queries see their own position; `None` if they see too little around it to be sure.
    fn sees_own(&self) -> Option<bool> {
        if !self.is_self {
            return None;
        }
        let (mut n_own, mut n_rows, mut n_others, mut n_cells) = (0, 0, 0, 0);
        for query_idx in &self.rows {
            let own = query_idx + self.base;
            if own >= self.support.n_keys {
                return None;
            }
            n_own += usize::from(self.support.sees(*query_idx, own));
            n_rows += 1;
            for key_idx in self.first(*query_idx)..=self.last(*query_idx) {
                n_cells += usize::from(key_idx != own);
                n_others += usize::from(key_idx != own && self.support.sees(*query_idx, key_idx));
            }
        }
        if n_own > 0 {
            return Some(true);
        }
        // Rows that give all weight to one key, such as the previous one, are no evidence about other keys.
        let is_dense =
            n_rows >= 3 && n_others >= 2 * n_rows && n_others as f64 >= MOST * n_cells as f64;
        is_dense.then_some(false)
    }
}

/// The most frequent number (the largest, if tied) and its count.
fn mode(values: impl Iterator<Item = isize>) -> Option<(isize, usize)> {
    let mut counts = std::collections::BTreeMap::<isize, usize>::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(value, n)| (*n, *value))
}
