//! Which cells of a map no query sees, so that they are left blank and not drawn as probability 0.
//!
//! [`Hidden`] is for maps of heads that were computed in full, and [`Unseen`] for the pooled maps in a layer's report, which has
//! padding and global tokens too and is looked up by column for hundreds of heads a frame.

use std::ops::Range;

use attnscope_compute::attention::{HeadSummary, Mask, Pooled, Visibility};
use attnscope_run::Pyramid;

/// What hides cells.
#[derive(Debug, Clone)]
pub enum Hidden<'a> {
    /// Nothing is known to be hidden.
    Nothing,
    /// Scores of the same size, −inf where masked.
    Scores(&'a Pyramid),
    /// The declared mask, and the queries and keys per cell.
    Mask(Box<Visibility>, [usize; 2]),
}

impl<'a> Hidden<'a> {
    /// What hides cells of a map with these scores; the mask is used if there are no scores of that size.
    pub fn of(values: &Pyramid, scores: &'a Pyramid, mask: Option<Visibility>) -> Self {
        let [finest, known] = [values, scores].map(Pyramid::finest);
        let is_known = scores.level(usize::MAX).cells.first() != Some(&f32::NEG_INFINITY);
        if is_known && (finest.n_rows, finest.n_cols) == (known.n_rows, known.n_cols) {
            return Self::Scores(scores);
        }
        let per_cell = [finest.queries_per_cell, finest.keys_per_cell];
        Self::by(mask, per_cell)
    }

    /// What hides cells of a map of which only the mask is known.
    pub fn by(mask: Option<Visibility>, per_cell: [usize; 2]) -> Self {
        mask.map_or(Self::Nothing, |mask| Self::Mask(Box::new(mask), per_cell))
    }

    /// Whether all of some tiles of a level are hidden.
    pub fn hides(&self, level: usize, rows: Range<usize>, cols: Range<usize>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Scores(scores) => {
                let scores = scores.level(level);
                rows.into_iter().all(|row| {
                    let mut cols = cols.clone();
                    cols.all(|col| scores.at(row, col) == f32::NEG_INFINITY)
                })
            }
            Self::Mask(mask, [per_row, per_col]) => {
                let tokens = |range: Range<usize>, per_cell: usize, n: usize| {
                    let scale = per_cell << level;
                    (range.start * scale).min(n)..(range.end * scale).min(n)
                };
                let queries = tokens(rows, *per_row, mask.n_queries);
                let keys = tokens(cols, *per_col, mask.n_keys);
                let Some(last) = queries.end.checked_sub(1) else {
                    return false;
                };
                // Later queries see later keys, so the first and the last one span what all of them see.
                let (first, last) = (mask.range(queries.start), mask.range(last));
                first.start.max(keys.start) >= last.end.min(keys.end)
            }
        }
    }
}

/// Cells that no pair of a query and a key can fill: the mask or padding hides all of their pairs.
#[derive(Debug, Clone)]
pub struct Unseen {
    /// First and last row of each column that some query of the row can fill; empty where the first is larger. // [column]
    rows: Vec<(usize, usize)>,
    /// Rows whose queries are all padding. // [row]
    is_padding: Vec<bool>,
}

impl Unseen {
    /// The cells of a layer's maps that its mask hides. The maps of all its heads have one size.
    pub fn of(head: &HeadSummary, mask: Mask) -> Self {
        let Pooled {
            queries_per_cell,
            keys_per_cell,
            n_cols,
            ..
        } = head.pooled;
        let n_keys = head.column_sums.len();
        let is_key = |key_idx: &usize| {
            let real = head.real_keys.as_ref();
            real.is_none_or(|real| real.get(*key_idx).copied().unwrap_or(true))
        };
        let rows = (0..n_cols).map(|col| {
            let tile = col * keys_per_cell..((col + 1) * keys_per_cell).min(n_keys);
            // What a mask shows moves with the key, so the first and the last key of a tile say what all of them say.
            let ends = [tile.clone().find(is_key), tile.rev().find(is_key)];
            let seeing = ends.into_iter().flatten();
            let seeing = seeing.flat_map(|key_idx| head.queries_seeing(mask, key_idx));
            let seeing = seeing.filter(|queries| !queries.is_empty());
            seeing.fold((1, 0), |(first, last), queries| {
                let own = (
                    queries.start / queries_per_cell,
                    (queries.end - 1) / queries_per_cell,
                );
                if first > last {
                    own
                } else {
                    (first.min(own.0), last.max(own.1))
                }
            })
        });
        let tiles = head.rows.chunks(queries_per_cell.max(1));
        Self {
            rows: rows.collect(),
            is_padding: tiles
                .map(|rows| rows.iter().all(|row| !row.is_real))
                .collect(),
        }
    }

    /// A map with its hidden cells marked as masked; a weight on one is a fault and stays.
    pub fn marked(&self, map: &Pooled) -> Pooled {
        let mut map = map.clone();
        let n_cols = map.n_cols.max(1);
        for (idx, value) in map.cells.iter_mut().enumerate() {
            if *value == 0.0 && self.hides(idx / n_cols, idx % n_cols) {
                *value = f32::NEG_INFINITY;
            }
        }
        map
    }

    pub fn hides(&self, row: usize, col: usize) -> bool {
        let is_padding = self.is_padding.get(row).copied().unwrap_or(false);
        let (first, last) = self.rows.get(col).copied().unwrap_or((0, usize::MAX));
        is_padding || !(first..=last).contains(&row)
    }
}
