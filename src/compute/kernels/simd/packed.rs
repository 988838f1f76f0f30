//! Keys, queries and values of a head, packed for the two products of attention.
//!
//! Keys are packed in transposed panels of three vectors of keys, so that a tile of scores is built from whole vectors; values in
//! panels of a few vectors of their width. Later keys can be appended to both.

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use crate::kernels::Aligned;

/// Vectors of keys per panel.
pub(super) const KEY_VECTORS: usize = 3;
/// Keys per block of weighted values: with a panel's width, a block stays in the L1 cache.
pub const VALUE_BLOCK: usize = 96;
/// Query rows in a tile of scores: as many as leave registers for a panel's vectors.
pub(super) const fn query_rows(registers: usize) -> usize {
    if registers >= 32 { 8 } else { 4 }
}

/// Most vectors in a panel of values.
const fn value_vectors(registers: usize) -> usize {
    if registers >= 32 { 4 } else { 2 }
}

struct LanesOf;

impl Kernel for LanesOf {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> (usize, usize) {
        (L::N, L::REGISTERS)
    }
}

/// The keys of one head, packed. // [panel][d_head][keys of a panel]
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub(super) data: Aligned,
    pub(super) d_head: usize,
    pub(super) n_panel: usize,
    pub(super) n_keys: usize,
}

impl Keys {
    /// Packs `n_keys` rows of `d_head` values, `stride` apart.
    pub fn pack(
        &mut self,
        level: Level,
        from: &[f32],
        stride: usize,
        n_keys: usize,
        d_head: usize,
    ) {
        let (n_lanes, _) = level.run(LanesOf);
        let n_panel = KEY_VECTORS * n_lanes;
        (self.d_head, self.n_panel, self.n_keys) = (d_head, n_panel, 0);
        self.data.clear();
        self.extend(from, stride, n_keys);
    }

    /// Packs the rows after those already packed, up to `n_keys` rows in all.
    pub fn extend(&mut self, from: &[f32], stride: usize, n_keys: usize) {
        let (d_head, n_panel) = (self.d_head, self.n_panel);
        let new = self.n_keys..n_keys;
        self.n_keys = n_keys;
        let n_panels = n_keys.div_ceil(n_panel.max(1));
        self.data.resize(n_panels * d_head * n_panel);
        for key_idx in new {
            let row = &from[key_idx * stride..][..d_head];
            let at = key_idx / n_panel * d_head * n_panel + key_idx % n_panel;
            let column = self.data[at..].iter_mut().step_by(n_panel);
            column.zip(row).for_each(|(to, from)| *to = *from);
        }
    }

    /// Number of keys per panel.
    pub fn n_panel(&self) -> usize {
        self.n_panel
    }

    /// Width of a row of scores, padded to whole panels.
    pub fn width(&self) -> usize {
        self.n_keys.next_multiple_of(self.n_panel.max(1))
    }

    /// Size of its buffer in bytes.
    pub fn held(&self) -> usize {
        self.data.held()
    }

    /// Size in bytes of `n_keys` keys at the widest level.
    pub fn bytes(n_keys: usize, d_head: usize) -> usize {
        n_keys.next_multiple_of(KEY_VECTORS * 16) * d_head * size_of::<f32>()
    }
}

/// A block of one head's queries, one row after another. // [row, d_head]
#[derive(Debug, Clone, Default)]
pub struct Queries {
    pub(super) data: Vec<f32>,
}

impl Queries {
    /// Copies `n_rows` rows of `d_head` values, `stride` apart; the last tile is padded with zeros.
    pub fn pack(
        &mut self,
        level: Level,
        from: &[f32],
        stride: usize,
        n_rows: usize,
        d_head: usize,
    ) {
        self.data.clear();
        for row_idx in 0..n_rows {
            self.data
                .extend_from_slice(&from[row_idx * stride..][..d_head]);
        }
        self.data
            .resize(Self::padded_rows(level, n_rows) * d_head, 0.0);
    }

    /// Number of rows in a buffer of scores, padded to whole tiles.
    pub fn padded_rows(level: Level, n_rows: usize) -> usize {
        n_rows.next_multiple_of(query_rows(level.run(LanesOf).1))
    }
}

/// The values of one head, packed. // [panel][key][width of the panel]
#[derive(Debug, Clone, Default)]
pub struct Values {
    pub(super) data: Aligned,
    pub(super) n_keys: usize,
    /// Capacity of each panel in keys.
    pub(super) n_room: usize,
    pub(super) n_vectors: usize,
    pub(super) n_lanes: usize,
    pub(super) n_most: usize,
}

impl Values {
    /// Packs `n_keys` rows of `d_value` values, `stride` apart; widths are padded to whole vectors with zeros.
    pub fn pack(
        &mut self,
        level: Level,
        from: &[f32],
        stride: usize,
        n_keys: usize,
        d_value: usize,
    ) {
        let (n_lanes, registers) = level.run(LanesOf);
        let n_vectors = d_value.div_ceil(n_lanes);
        let n_most = value_vectors(registers);
        (self.n_keys, self.n_vectors, self.n_lanes, self.n_most) = (0, n_vectors, n_lanes, n_most);
        self.data.clear();
        self.data.resize(n_keys * n_vectors * n_lanes);
        self.n_room = n_keys;
        self.extend(from, stride, n_keys, d_value);
    }

    /// Packs the rows after those already packed, up to `n_keys` rows in all.
    pub fn extend(&mut self, from: &[f32], stride: usize, n_keys: usize, d_value: usize) {
        if n_keys > self.n_room {
            self.make_room(n_keys);
        }
        let (new, n_lanes, n_room) = (self.n_keys..n_keys, self.n_lanes, self.n_room);
        self.n_keys = n_keys;
        for (first, n) in self.panels() {
            let n_columns = n * n_lanes;
            let columns = first * n_lanes..d_value.min(first * n_lanes + n_columns);
            let panel = &mut self.data[first * n_lanes * n_room..][..n_columns * n_room];
            let to = panel.chunks_exact_mut(n_columns).enumerate();
            for (key_idx, to) in to.take(new.end).skip(new.start) {
                let row = &from[key_idx * stride..][..d_value];
                to[..columns.len()].copy_from_slice(&row[columns.clone()]);
            }
        }
    }

    /// Grows the panels to `n_keys` keys and some more, so that they are rarely moved.
    fn make_room(&mut self, n_keys: usize) {
        let n_room = n_keys + n_keys / 8 + VALUE_BLOCK;
        let width = self.width();
        let mut data = Aligned::zeros(n_room * width);
        for (first, n) in self.panels() {
            let (at, n_columns) = (first * self.n_lanes, n * self.n_lanes);
            let held = &self.data[at * self.n_room..][..n_columns * self.n_keys];
            data[at * n_room..][..held.len()].copy_from_slice(held);
        }
        (self.data, self.n_room) = (data, n_room);
    }

    /// Width of an output row, padded to whole vectors.
    pub fn width(&self) -> usize {
        self.n_vectors * self.n_lanes
    }

    /// Size of its buffer in bytes.
    pub fn held(&self) -> usize {
        self.data.held()
    }

    /// First vector and number of vectors of each panel.
    pub(super) fn panels(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (n_vectors, n_most) = (self.n_vectors, self.n_most.max(1));
        (0..n_vectors)
            .step_by(n_most)
            .map(move |first| (first, n_most.min(n_vectors - first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_key_by_key_equals_packing_all_at_once() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            for (d_head, d_value) in [(1, 1), (5, 20), (64, 64), (80, 150)] {
                let n_most = 310;
                let value = |i: usize| (i as f32 * 0.37).sin();
                let rows = |width: usize| (0..n_most * width).map(value).collect::<Vec<f32>>();
                let (k, v) = (rows(d_head), rows(d_value));
                let (mut keys, mut values) = (Keys::default(), Values::default());
                keys.pack(level, &k, d_head, 3, d_head);
                values.pack(level, &v, d_value, 3, d_value);
                for n_keys in [4, 5, 60, 60, 200, 201, n_most] {
                    keys.extend(&k, d_head, n_keys);
                    values.extend(&v, d_value, n_keys, d_value);
                    let (mut all_keys, mut all_values) = (Keys::default(), Values::default());
                    all_keys.pack(level, &k, d_head, n_keys, d_head);
                    all_values.pack(level, &v, d_value, n_keys, d_value);
                    assert_eq!(&*keys.data, &*all_keys.data, "{level:?} {n_keys}");
                    assert_eq!(keys.width(), all_keys.width());
                    for (first, n) in all_values.panels() {
                        let n_values = n * values.n_lanes * n_keys;
                        let panel = |all: &Values| {
                            all.data[first * all.n_lanes * all.n_room..][..n_values].to_vec()
                        };
                        assert_eq!(panel(&values), panel(&all_values), "{level:?} {n_keys}");
                    }
                }
            }
        }
    }
}
