//! The two products of attention on packed blocks: queries · keys, and weights · values.
//!
//! Sums follow the order of the inner dimension, whatever the tile, so results do not depend on how rows are grouped.

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::packed::{KEY_VECTORS, Keys, Queries, VALUE_BLOCK, Values, query_rows};

/// Query rows in a tile of weights · values.
const VALUE_ROWS: usize = 6;

/// q·k of a block of queries with some panels of keys. // scores: [padded row, keys.width()]
///
/// # Panics
/// When `scores` is too short for its rows.
pub fn scores_of(
    level: Level,
    queries: &Queries,
    keys: &Keys,
    panels: std::ops::Range<usize>,
    scores: &mut [f32],
) {
    level.run(ScoresOf {
        queries,
        keys,
        panels,
        scores,
    });
}

struct ScoresOf<'a> {
    queries: &'a Queries,
    keys: &'a Keys,
    panels: std::ops::Range<usize>,
    scores: &'a mut [f32],
}

impl Kernel for ScoresOf<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        if L::REGISTERS >= 32 {
            self.tiles::<L, { query_rows(32) }>(l);
        } else {
            self.tiles::<L, { query_rows(16) }>(l);
        }
    }
}

impl ScoresOf<'_> {
    #[inline(always)]
    fn tiles<L: Lanes, const ROWS: usize>(self, l: L) {
        let (width, d_head, n_panel) = (self.keys.width(), self.keys.d_head, self.keys.n_panel);
        for panel_idx in self.panels {
            let panel = &self.keys.data[panel_idx * d_head * n_panel..][..d_head * n_panel];
            let groups = self.queries.data.chunks_exact(d_head * ROWS);
            let rows = self.scores.chunks_exact_mut(ROWS * width);
            for (queries, rows) in groups.zip(rows) {
                let tile = tile_of_scores::<L, ROWS>(l, queries, L::vectors(panel));
                for (row, tile) in rows.chunks_exact_mut(width).zip(tile) {
                    let to = &mut row[panel_idx * n_panel..][..n_panel];
                    L::vectors_mut(to).copy_from_slice(&tile);
                }
            }
        }
    }
}

/// One tile. // queries: [row, d_head]; panel: [d_head, vector of keys]
#[inline(always)]
fn tile_of_scores<L: Lanes, const ROWS: usize>(
    l: L,
    queries: &[f32],
    panel: &[L::Vector],
) -> [[L::Vector; KEY_VECTORS]; ROWS] {
    let mut tile = [[l.splat(0.0); KEY_VECTORS]; ROWS];
    let (panel, _) = panel.as_chunks::<KEY_VECTORS>();
    let d_head = panel.len();
    let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &queries[i * d_head..][..d_head]);
    add_products(l, &rows, panel, &mut tile);
    tile
}

/// out += weights · values over some keys, in blocks of keys. // weights: [row, stride]; out: [row, values.width()]
///
/// `ends` gives the end of each row's weights, at most `keys.end`; weights beyond it are 0.
///
/// # Panics
/// When the weights of a row, or the rows of `out`, are shorter than `keys` and `ends` require.
pub fn weigh(
    level: Level,
    weights: &[f32],
    stride: usize,
    ends: &[usize],
    keys: std::ops::Range<usize>,
    values: &Values,
    out: &mut [f32],
) {
    let n_rows = ends.len();
    assert!(
        n_rows == 0 || (keys.end <= stride && n_rows * stride <= weights.len()),
        "weights of {n_rows} rows, {stride} apart, do not hold keys to {}",
        keys.end
    );
    assert!(
        keys.end <= values.n_keys && n_rows * values.width() <= out.len(),
        "values of {} keys, or an output of {} values, are too few",
        values.n_keys,
        out.len()
    );
    level.run(Weigh {
        weights,
        stride,
        ends,
        keys,
        values,
        out,
    });
}

struct Weigh<'a> {
    weights: &'a [f32],
    stride: usize,
    ends: &'a [usize],
    keys: std::ops::Range<usize>,
    values: &'a Values,
    out: &'a mut [f32],
}

impl Kernel for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let mut at = self.keys.start;
        while at < self.keys.end {
            let keys = at..(at + VALUE_BLOCK).min(self.keys.end);
            at = keys.end;
            for panel in self.values.panels() {
                match panel.1 {
                    4 => self.panel::<L, 4>(l, panel.0, keys.clone()),
                    3 => self.panel::<L, 3>(l, panel.0, keys.clone()),
                    2 => self.panel::<L, 2>(l, panel.0, keys.clone()),
                    _ => self.panel::<L, 1>(l, panel.0, keys.clone()),
                }
            }
        }
    }
}

impl Weigh<'_> {
    #[inline(always)]
    fn panel<L: Lanes, const VECTORS: usize>(
        &mut self,
        l: L,
        first_vector: usize,
        keys: std::ops::Range<usize>,
    ) {
        let n_columns = VECTORS * L::N;
        let panel = &self.values.data[first_vector * L::N * self.values.n_room..];
        let panel = &panel[keys.start * n_columns..keys.end * n_columns];
        let (panel, _) = L::vectors(panel).as_chunks::<VECTORS>(); // [key, vector]
        let width = self.values.width();
        let mut row_idx = 0;
        while row_idx < self.ends.len() {
            let n_rows = if row_idx + VALUE_ROWS <= self.ends.len() {
                VALUE_ROWS
            } else {
                1
            };
            let ends = self.ends[row_idx..row_idx + n_rows].iter();
            let end = ends.fold(0, |most, end| most.max(*end));
            let n_keys = end.min(keys.end).saturating_sub(keys.start);
            let panel = &panel[..n_keys];
            let weights = &self.weights[row_idx * self.stride + keys.start..];
            let out = &mut self.out[row_idx * width + first_vector * L::N..];
            if n_keys == 0 {
                row_idx += n_rows;
                continue;
            }
            if n_rows == VALUE_ROWS {
                tile_of_values::<L, VECTORS, VALUE_ROWS>(
                    l,
                    weights,
                    self.stride,
                    panel,
                    out,
                    width,
                );
            } else {
                tile_of_values::<L, VECTORS, 1>(l, weights, self.stride, panel, out, width);
            }
            row_idx += n_rows;
        }
    }
}

/// One tile. // weights: [row, stride]; panel: [key, vector]; out: [row, width]
#[inline(always)]
fn tile_of_values<L: Lanes, const VECTORS: usize, const ROWS: usize>(
    l: L,
    weights: &[f32],
    stride: usize,
    panel: &[[L::Vector; VECTORS]],
    out: &mut [f32],
    width: usize,
) {
    let mut tile = [[l.splat(0.0); VECTORS]; ROWS];
    for (row_idx, sums) in tile.iter_mut().enumerate() {
        sums.copy_from_slice(&L::vectors(&out[row_idx * width..])[..VECTORS]);
    }
    let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &weights[i * stride..][..panel.len()]);
    add_products(l, &rows, panel, &mut tile);
    for (row_idx, sums) in tile.iter().enumerate() {
        L::vectors_mut(&mut out[row_idx * width..])[..VECTORS].copy_from_slice(sums);
    }
}

/// tile += left · right, step by step along the inner dimension; every product uses it. A row of `left` must be at least as long
/// as `right`. // left: [row][inner]; right: [inner, vector]
#[inline(always)]
pub(in crate::kernels) fn add_products<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    left: &[&[f32]; ROWS],
    right: &[[L::Vector; VECTORS]],
    tile: &mut [[L::Vector; VECTORS]; ROWS],
) {
    let left: [&[f32]; ROWS] = std::array::from_fn(|i| &left[i][..right.len()]);
    for (i, vectors) in right.iter().enumerate() {
        for (row, sums) in left.iter().zip(tile.iter_mut()) {
            let factor = l.splat(row[i]);
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = l.mul_add(factor, *vector, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_end_early_count_as_zero_afterwards() {
        let (n_rows, n_keys, d_value) = (14, 130, 40);
        let v = values(n_keys * d_value, 0.3);
        let ends: Vec<usize> = (0..n_rows).map(|row_idx| row_idx * 10).collect();
        let mut weights = values(n_rows * n_keys, 0.7);
        for (row, end) in weights.chunks_mut(n_keys).zip(&ends) {
            row[*end..].fill(0.0);
        }
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let mut packed = Values::default();
            packed.pack(level, &v, d_value, n_keys, d_value);
            let mut found = [(); 2].map(|()| vec![0.0; n_rows * packed.width()]);
            for (out, ends) in found.iter_mut().zip([&ends, &vec![n_keys; n_rows]]) {
                weigh(level, &weights, n_keys, ends, 0..n_keys, &packed, out);
            }
            assert_eq!(found[0], found[1], "{level:?}");
        }
    }

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37 + seed).sin()).collect()
    }

    /// Reference sum over the inner dimension, in f64.
    fn expected(left: &[f32], right: impl Fn(usize) -> f32) -> f64 {
        let products = left.iter().enumerate();
        products
            .map(|(i, a)| f64::from(*a) * f64::from(right(i)))
            .sum()
    }

    #[test]
    fn packed_products_match_sums_at_every_level_and_shape() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            for (n_rows, n_keys, d_head, d_value) in [
                (1, 1, 1, 1),
                (7, 50, 5, 20),
                (48, 99, 64, 64),
                (13, 200, 80, 130),
            ] {
                let (q, k, v) = (
                    values(n_rows * d_head, 0.1),
                    values(n_keys * d_head, 0.2),
                    values(n_keys * d_value, 0.3),
                );
                let (mut queries, mut keys, mut packed) =
                    (Queries::default(), Keys::default(), Values::default());
                queries.pack(level, &q, d_head, n_rows, d_head);
                keys.pack(level, &k, d_head, n_keys, d_head);
                packed.pack(level, &v, d_value, n_keys, d_value);
                let width = keys.width();
                let mut scores = vec![0.0; Queries::padded_rows(level, n_rows) * width];
                scores_of(
                    level,
                    &queries,
                    &keys,
                    0..width / keys.n_panel(),
                    &mut scores,
                );
                let mut out = vec![0.0; n_rows * packed.width()];
                let ends = vec![n_keys; n_rows];
                weigh(level, &scores, width, &ends, 0..n_keys, &packed, &mut out);
                for row_idx in 0..n_rows {
                    let row = &scores[row_idx * width..][..n_keys];
                    for (key_idx, found) in row.iter().enumerate() {
                        let query = &q[row_idx * d_head..][..d_head];
                        let expected = expected(query, |i| k[key_idx * d_head + i]);
                        assert!((f64::from(*found) - expected).abs() < 1e-4, "{level:?}");
                    }
                    for column_idx in 0..d_value {
                        let expected = expected(row, |i| v[i * d_value + column_idx]);
                        let found = f64::from(out[row_idx * packed.width() + column_idx]);
                        assert!(
                            (found - expected).abs() < 1e-3,
                            "{level:?} {found} {expected}"
                        );
                    }
                }
            }
        }
    }
}
