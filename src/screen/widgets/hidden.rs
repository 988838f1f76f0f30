//! Which cells of a map no query sees, so that they are left blank and not drawn as probability 0.

use std::ops::Range;

use attnscope_compute::attention::Visibility;
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
