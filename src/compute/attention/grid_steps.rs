//! Learned vectors per distance in rows and in columns of a picture's patches, and the empty places of windows at its ends.

use super::grid_turn::GridTurn;
use super::head::Head;
use super::picked_keys::PickedKeys;
use super::rope::{RopeSpec, RopeTable};
use super::spec::AttentionSpec;
use super::top_keys::GridWindow;
use crate::kernels::{Matrix, MatrixMut, Threads, product};

/// Positions by distance in rows and in columns: the products of a query with a learned vector of each are added to its scaled score
/// (Li et al. 2022, arXiv 2112.01526), or a learned value per head and pair of distances (Liu et al. 2021, arXiv 2103.14030).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridSteps {
    /// Rows and columns of the picture's patches; zeros if every picture that holds whole windows is taken.
    pub grid: [usize; 2],
    /// Set if queries see the patches of their own window alone. A window that reaches beyond the picture is filled up with empty
    /// places, which are keys too: they take probability.
    pub window: Option<GridWindow>,
}

impl GridSteps {
    /// The steps of a picture of this many patches, whose windows were picked, if it may be any.
    pub(super) fn of_picture(self, n_patches: usize, picked: Option<&PickedKeys>) -> Self {
        let n_columns = picked.and_then(|picked| picked.n_columns);
        match n_columns.filter(|_| self.grid == [0; 2]) {
            Some(n_columns) => Self {
                grid: [n_patches / n_columns.max(1), n_columns],
                ..self
            },
            None => self,
        }
    }

    /// Rows and columns that a query sees.
    fn reach(self) -> [usize; 2] {
        let window = self
            .window
            .map(|window| [window.rows.max(1), window.columns.max(1)]);
        window.unwrap_or(self.grid)
    }

    /// The number of distances in rows, and in columns.
    pub fn n_steps(self) -> [usize; 2] {
        self.reach().map(|n| (2 * n).saturating_sub(1))
    }

    /// Whether some windows have empty places.
    pub fn has_empty_places(self) -> bool {
        let reach = self.reach();
        self.window.is_some()
            && self
                .grid
                .iter()
                .zip(reach)
                .any(|(n, of_window)| n % of_window.max(1) != 0)
    }

    /// Row and column of a patch.
    fn place(self, patch_idx: usize) -> [usize; 2] {
        let n_columns = self.grid[1].max(1);
        [patch_idx / n_columns, patch_idx % n_columns]
    }

    /// Row and column of a query, or of the first of its patches, among those of keys.
    fn place_of_query(self, query_idx: usize) -> [usize; 2] {
        match self.window {
            Some(window) if window.per_query > 1 => window.place_of_query(query_idx, self.grid[1]),
            _ => self.place(query_idx),
        }
    }

    /// The index of a distance among those of rows, and of columns; those farther than windows reach share the last ones.
    fn steps(self, query: [usize; 2], key: [usize; 2]) -> [usize; 2] {
        let (reach, n_steps) = (self.reach(), self.n_steps());
        [0, 1].map(|axis| {
            let ahead = (query[axis] + reach[axis] - 1).saturating_sub(key[axis]);
            ahead.min(n_steps[axis].saturating_sub(1))
        })
    }

    /// The empty places of the window of a patch.
    fn empty_places(self, [row, column]: [usize; 2]) -> Vec<[usize; 2]> {
        let Some(window) = self.window else {
            return Vec::new();
        };
        let whole = self.whole();
        let rows = window.around(0, row, whole[0]);
        let columns = window.around(1, column, whole[1]);
        let all = rows.flat_map(|row| columns.clone().map(move |col| [row, col]));
        all.filter(|[row, column]| *row >= self.grid[0] || *column >= self.grid[1])
            .collect()
    }

    /// Rows and columns of the picture with all of its windows whole.
    fn whole(self) -> [usize; 2] {
        let reach = self.reach();
        [0, 1].map(|axis| self.grid[axis].next_multiple_of(reach[axis].max(1)))
    }
}

/// The learned vectors, which all heads share, and what an empty place holds.
#[derive(Debug, Clone, Default)]
pub struct StepTables {
    /// By distance in rows, the farthest key below first; empty if distances add nothing. // [step, d_head]
    pub rows: Vec<f32>,
    /// By distance in columns, the farthest key to the right first. // [step, d_head]
    pub columns: Vec<f32>,
    /// A value by head and both distances, in the orders of the tables above; empty if there is none. // [step in rows, step in columns, head]
    pub pairs: Vec<f32>,
    /// The key of an empty place; empty if it is 0. // [n_kv_heads · d_head]
    pub empty_key: Vec<f32>,
    /// The value of an empty place; empty if it is 0. // [n_kv_heads · d_value]
    pub empty_value: Vec<f32>,
}

impl StepTables {
    /// The values of one head by both distances. // [step in rows, step in columns]
    fn of_head(&self, head_idx: usize, n_heads: usize) -> Vec<f32> {
        let of_head = self.pairs.iter().skip(head_idx);
        of_head.step_by(n_heads.max(1)).copied().collect()
    }
}

/// What [`GridSteps`] add to the scores of one head.
#[derive(Debug, Clone)]
pub struct StepBias {
    steps: GridSteps,
    first_query: usize,
    /// Products of each query that runs with the vectors; empty without vectors. // [query, step]
    of_rows: Vec<f32>,
    of_columns: Vec<f32>,
    /// Values of the head by both distances; empty without them. // [step in rows, step in columns]
    of_pairs: Vec<f32>,
    /// log Σ exp(score) of the empty places that a query sees; −inf if it sees none. // [query]
    empty: Option<Vec<f32>>,
}

impl StepBias {
    /// The bias of one head from its queries.
    pub(super) fn new(
        spec: &AttentionSpec,
        steps: GridSteps,
        tables: &StepTables,
        (head, head_idx): (&Head<'_>, usize),
        queries: std::ops::Range<usize>,
    ) -> Self {
        let products = |table: &[f32]| -> Vec<f32> {
            if table.is_empty() {
                return Vec::new();
            }
            let n_steps = table.len() / spec.d_head.max(1);
            let mut values = vec![0.0; queries.len() * n_steps];
            let (from, stride) = head.queries_from(queries.start);
            let from = Matrix::new(from, queries.len(), spec.d_head, stride, 1);
            let table = Matrix::row_major(table, n_steps, spec.d_head);
            let mut to = MatrixMut::new(&mut values, queries.len(), n_steps, n_steps);
            product(&mut to, from, table.transposed(), false, Threads::One);
            values
        };
        let mut bias = Self {
            steps,
            first_query: queries.start,
            of_rows: products(&tables.rows),
            of_columns: products(&tables.columns),
            of_pairs: tables.of_head(head_idx, spec.n_heads),
            empty: None,
        };
        if steps.has_empty_places() {
            let keys = EmptyKeys::new(spec, steps, tables, head_idx);
            let score = |query_idx: usize| bias.empty_score(spec, &keys, head, query_idx);
            bias.empty = Some(queries.map(score).collect());
        }
        bias
    }

    /// What two distances add to a query's score.
    fn between(&self, query_idx: usize, [row, column]: [usize; 2]) -> f32 {
        let nth = query_idx - self.first_query;
        let [n_rows, n_columns] = self.steps.n_steps();
        let at = |values: &[f32], idx: usize| values.get(idx).copied().unwrap_or(0.0);
        at(&self.of_rows, nth * n_rows + row)
            + at(&self.of_columns, nth * n_columns + column)
            + at(&self.of_pairs, row * n_columns + column)
    }

    /// The bias of a pair of patches.
    pub(super) fn of(&self, query_idx: usize, key_idx: usize) -> f32 {
        let query = self.steps.place_of_query(query_idx);
        let key = self.steps.place(key_idx);
        self.between(query_idx, self.steps.steps(query, key))
    }

    /// Appends the bias of a query with every patch, row by row of the picture.
    pub(super) fn row(&self, query_idx: usize, to: &mut Vec<f32>) {
        let query = self.steps.place_of_query(query_idx);
        let [n_rows, n_columns] = self.steps.grid;
        let steps = (0..n_columns).map(|column| self.steps.steps(query, [query[0], column])[1]);
        let steps: Vec<usize> = steps.collect();
        for row in 0..n_rows {
            let in_rows = self.steps.steps(query, [row, query[1]])[0];
            let each = steps
                .iter()
                .map(|step| self.between(query_idx, [in_rows, *step]));
            to.extend(each);
        }
    }

    /// log Σ exp(score) of the empty places that a query sees.
    pub(super) fn empty(&self, query_idx: usize) -> Option<f32> {
        let scores = self.empty.as_ref()?;
        scores.get(query_idx - self.first_query).copied()
    }

    fn empty_score(
        &self,
        spec: &AttentionSpec,
        keys: &EmptyKeys,
        head: &Head<'_>,
        query_idx: usize,
    ) -> f32 {
        let own = self.steps.place_of_query(query_idx);
        let (query, scale) = (head.query(query_idx), spec.scale.of_bias(spec.d_head));
        let scores = self.steps.empty_places(own).into_iter().map(|place| {
            let product: f32 = query.iter().zip(keys.at(place)).map(|(q, k)| q * k).sum();
            let scaled = scale * product;
            let capped = spec
                .softcap
                .map_or(scaled, |cap| cap * (scaled / cap).tanh());
            f64::from(capped + self.between(query_idx, self.steps.steps(own, place)))
        });
        let scores: Vec<f64> = scores.collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY {
            return f32::NEG_INFINITY;
        }
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        (max + sum.ln()) as f32
    }
}

/// The keys of empty places of one head: the same vector, which turns where keys do.
struct EmptyKeys {
    n_columns: usize,
    d_head: usize,
    /// One for all places, or one for each. // [place, d_head]
    keys: Vec<f32>,
}

impl EmptyKeys {
    fn new(spec: &AttentionSpec, steps: GridSteps, tables: &StepTables, head_idx: usize) -> Self {
        let d_head = spec.d_head;
        let first = spec.kv_head_of(head_idx) * d_head;
        let key = tables.empty_key.get(first..first + d_head);
        let key = key.map_or_else(|| vec![0.0; d_head], <[f32]>::to_vec);
        let [n_rows, n_columns] = steps.whole();
        let keys = match &spec.rope {
            None => key,
            Some(rope) => {
                let turn = rope.grid.map(|turn| GridTurn {
                    grid: Some([n_rows, n_columns]),
                    ..turn
                });
                let rope = RopeSpec {
                    grid: turn,
                    ..rope.clone()
                };
                let places: Vec<usize> = (0..n_rows * n_columns).collect();
                let table = RopeTable::new(&rope, &places);
                let mut keys = key.repeat(places.len());
                let each = keys.chunks_mut(d_head.max(1)).enumerate();
                each.for_each(|(place, key)| table.rotate(place, key));
                keys
            }
        };
        Self {
            n_columns,
            d_head,
            keys,
        }
    }

    fn at(&self, [row, column]: [usize; 2]) -> &[f32] {
        let first = (row * self.n_columns + column) * self.d_head;
        let own = self.keys.get(first..first + self.d_head);
        own.unwrap_or(&self.keys[..self.d_head])
    }
}

#[cfg(test)]
mod tests {
    use super::super::mask::Visibility;
    use super::super::spec::Mask;
    use super::*;

    #[test]
    fn windows_at_the_ends_have_empty_places_below_and_to_the_right() {
        let steps = GridSteps {
            grid: [3, 5],
            window: Some(GridWindow::plain([2, 3])),
        };
        let of_any = GridSteps {
            grid: [0; 2],
            ..steps
        };
        assert!(steps.has_empty_places() && !of_any.has_empty_places());
        let visibility = Visibility::of_self(Mask::with_width(false, None), 24, None);
        let window = GridWindow::plain([2, 3]);
        let picked = PickedKeys::of_windows(window, 6, (&visibility, 1));
        assert_eq!(of_any.of_picture(24, Some(&picked)).grid, [4, 6]);
        assert_eq!(steps.of_picture(24, Some(&picked)), steps);
        assert_eq!((steps.whole(), steps.n_steps()), ([4, 6], [3, 5]));
        assert_eq!(steps.empty_places([0, 1]), [[0usize; 2]; 0]);
        assert_eq!(steps.empty_places([1, 3]), [[0, 5], [1, 5]]);
        assert_eq!(steps.empty_places([2, 4]), [[2, 5], [3, 3], [3, 4], [3, 5]]);
        let fits = GridSteps {
            grid: [4, 6],
            ..steps
        };
        assert!(!fits.has_empty_places());
        let shifted = GridSteps {
            window: steps.window.map(|window| GridWindow {
                shift: [1, 1],
                ..window
            }),
            ..steps
        };
        // Rows 0, 1–2 and 3, where the picture has ended; columns 0, 1–3 and 4–5.
        assert_eq!(shifted.empty_places([0, 0]), [[0usize; 2]; 0]);
        assert_eq!(shifted.empty_places([2, 4]), [[1, 5], [2, 5]]);
        // A key below and to the right of its query has the first steps; a key above and to the left the last.
        assert_eq!(steps.steps([0, 0], [1, 2]), [0, 0]);
        assert_eq!(steps.steps([1, 2], [0, 0]), [2, 4]);
    }
}
