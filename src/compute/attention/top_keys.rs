//! Sparse attention: each query keeps only some of its keys, those that rank highest.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

/// How many keys a query keeps, and what ranks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopKeys {
    pub n: usize,
    pub by: KeyRank,
}

/// What ranks the keys of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRank {
    /// The scores of the head itself. Set by what-ifs only.
    Scores,
    /// The scores of an indexer, which a model learns beside its attention. They rank whole blocks of keys.
    Indexer(KeyBlocks),
    /// Their places: those in the query's own window of a picture's patches are kept, however many these are.
    Window(GridWindow),
    /// The scores of an indexer, of the pools behind the tokens: a query keeps so many pools, and all tokens that its mask lets it see.
    Pools,
}

/// Windows of a picture's patches, cut from the first row and column on; those at the other ends may be smaller. The patches of a video
/// are one picture, whose rows are those of all moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridWindow {
    pub rows: usize,
    pub columns: usize,
    /// Tokens before the patches, one for each window in order.
    pub n_first: usize,
    /// Rows, and columns, at which the second window begins; 0 if the first one is whole. Windows are then shifted: those at all ends
    /// are smaller (Liu et al. 2021, arXiv 2103.14030).
    pub shift: [usize; 2],
    /// Rows, and columns, of keys to one query: 1 if both are of the same grid.
    pub per_query: usize,
    /// Set if the patches of a window lie as many rows, and columns, apart as `rows` and `columns` say, and not side by side. Tokens
    /// before the patches then see themselves alone.
    pub is_spread: bool,
}

impl GridWindow {
    /// Windows of so many rows and columns, side by side from the first patch on.
    pub fn plain([rows, columns]: [usize; 2]) -> Self {
        Self {
            rows,
            columns,
            n_first: 0,
            shift: [0; 2],
            per_query: 1,
            is_spread: false,
        }
    }

    /// Row and column of the window of a token, in a picture of this many columns of patches.
    pub fn of(self, token_idx: usize, n_columns: usize) -> [usize; 2] {
        let n_columns = n_columns.max(1);
        let Some(patch_idx) = token_idx.checked_sub(self.n_first) else {
            if self.is_spread {
                return [usize::MAX, token_idx];
            }
            let across = n_columns.div_ceil(self.columns.max(1));
            return [token_idx / across, token_idx % across];
        };
        let place = [patch_idx / n_columns, patch_idx % n_columns];
        [0, 1].map(|axis| self.nth(axis, place[axis]))
    }

    /// Row and column of the window of a query, where keys have this many columns of patches.
    pub fn of_query(self, query_idx: usize, n_columns: usize) -> [usize; 2] {
        if self.per_query <= 1 {
            return self.of(query_idx, n_columns);
        }
        let place = self.place_of_query(query_idx, n_columns);
        [0, 1].map(|axis| self.nth(axis, place[axis]))
    }

    /// Row and column of the first of a query's own patches among keys of this many columns; no token stands before the patches.
    pub(super) fn place_of_query(self, query_idx: usize, n_columns: usize) -> [usize; 2] {
        let per_query = self.per_query.max(1);
        let across = (n_columns / per_query).max(1);
        [query_idx / across, query_idx % across].map(|at| at * per_query)
    }

    /// Rows of a window for axis 0, columns for axis 1.
    pub fn side(self, axis: usize) -> usize {
        [self.rows, self.columns][axis].max(1)
    }

    /// Which window a row is in for axis 0, or a column for axis 1.
    fn nth(self, axis: usize, at: usize) -> usize {
        if self.is_spread {
            return at % self.side(axis);
        }
        (at + self.before(axis)) / self.side(axis)
    }

    /// Rows, or columns, that the first window lacks.
    fn before(self, axis: usize) -> usize {
        match self.shift[axis] {
            0 => 0,
            shift => self.side(axis).saturating_sub(shift),
        }
    }

    /// The rows of the window that holds a row for axis 0, or the columns for axis 1, of all `n` there are with windows filled up.
    pub(super) fn around(self, axis: usize, at: usize, n: usize) -> Range<usize> {
        let (before, side) = (self.before(axis), self.side(axis));
        let first = self.nth(axis, at) * side;
        first.saturating_sub(before)..(first + side).saturating_sub(before).min(n)
    }
}

/// Blocks of consecutive keys that are kept or hidden as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyBlocks {
    /// Keys of a block. The number of keys that a query keeps is rounded up to whole blocks.
    pub size: usize,
    /// Blocks up to the query's own that rank before all others.
    pub n_local: usize,
    /// Whether a block is ranked by one key, a weighted mean of its keys. Blocks then begin at the first token, only those that a query
    /// sees whole are ranked, and the tokens behind the last of them are kept.
    pub are_pooled: bool,
}

impl KeyBlocks {
    /// Every key is ranked alone.
    pub const SINGLE: Self = Self {
        size: 1,
        n_local: 0,
        are_pooled: false,
    };
}

impl TopKeys {
    /// Whether keys are ranked in blocks of several that are cut without regard to the text: a block begins at a multiple of its size, wherever the text begins.
    pub fn ranks_blocks(self) -> bool {
        matches!(self.by, KeyRank::Indexer(blocks) if blocks.size > 1 && !blocks.are_pooled)
    }
}

impl fmt::Display for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.n)?;
        match self.by {
            KeyRank::Scores => Ok(()),
            KeyRank::Indexer(KeyBlocks::SINGLE) => f.write_str(" by indexer"),
            KeyRank::Pools => f.write_str(" pools by indexer"),
            KeyRank::Window(window) if window.is_spread => write!(
                f,
                " in windows of patches {} rows and {} columns apart",
                window.rows, window.columns
            ),
            KeyRank::Window(window) => {
                write!(
                    f,
                    " in windows of {} × {} patches",
                    window.rows, window.columns
                )?;
                match window.shift {
                    [0, 0] => Ok(()),
                    [rows, columns] => write!(f, ", shifted by {rows} × {columns}"),
                }
            }
            KeyRank::Indexer(blocks) if blocks.are_pooled => {
                write!(f, " by indexer, in pools of {}", blocks.size)
            }
            KeyRank::Indexer(blocks) => write!(f, " by indexer, in blocks of {}", blocks.size),
        }
    }
}

/// Leaves the `k` candidates with the largest scores, in any order. Of equal scores, the key with the lower index is kept. A NaN
/// counts as larger than every number, so that it stays visible.
pub(super) fn keep_largest(candidates: &mut Vec<(f32, usize)>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k, larger_first);
        candidates.truncate(k);
    }
}

fn larger_first(a: &(f32, usize), b: &(f32, usize)) -> Ordering {
    let by_score = match (a.0.is_nan(), b.0.is_nan()) {
        (false, false) => b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal),
        (a, b) => b.cmp(&a),
    };
    by_score.then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_ties_go_to_the_lower_index() {
        let kept = |scores: &[f32], k: usize| -> Vec<usize> {
            let mut all: Vec<(f32, usize)> = scores.iter().copied().zip(0..).collect();
            keep_largest(&mut all, k);
            let mut kept: Vec<usize> = all.into_iter().map(|(_, idx)| idx).collect();
            kept.sort_unstable();
            kept
        };
        assert_eq!(kept(&[1.0, 3.0, 2.0, 3.0], 1), [1]);
        assert_eq!(kept(&[1.0, 3.0, 2.0, 3.0], 3), [1, 2, 3]);
        assert_eq!(kept(&[0.0, -0.0, 0.0, 1.0], 3), [0, 1, 3]);
        assert_eq!(kept(&[1.0, f32::NAN, f32::INFINITY], 1), [1]);
        assert_eq!(kept(&[1.0, f32::NEG_INFINITY], 5), [0, 1]);
    }
}
