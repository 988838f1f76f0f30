//! Differences between a stored matrix and the model's: rows in another order, transposed, shifted or scaled.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::error::Result;
use rayon::prelude::*;

/// A converter's change to a tensor, to be undone when it is widened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stored {
    AsIs,
    /// The two halves of each head that rotate together have their rows interleaved.
    HalvesAlternate {
        d_head: usize,
    },
    /// The neighbours that rotate together have their rows in two halves of what rotates; rows behind these do not rotate.
    NeighboursApart {
        d_head: usize,
        d_rotary: usize,
    },
    /// The file has all queries, then all keys, then all values; the model has groups of heads that share a key, each followed by
    /// its key and its value.
    GroupsApart {
        n_groups: usize,
        /// Number of queries that share a key.
        n_shared: usize,
        d_head: usize,
    },
    /// The file has the transpose of the matrix.
    Transposed,
    /// The file has the values plus this number.
    Plus(f32),
    /// The file has the values divided by this number.
    Over(f32),
    /// The file has −exp(value).
    NegativeExp,
}

impl Stored {
    /// Returns rows of the model's tensor, of this shape, from elements that `read` provides.
    ///
    /// `read` widens a range of elements in the order of the file. It returns nothing for a type that cannot be widened, and then
    /// this does too.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn rows<'a>(
        self,
        rows: Range<usize>,
        shape: &[usize],
        read: impl Fn(Range<usize>) -> Result<Cow<'a, [f32]>>,
    ) -> Result<Cow<'a, [f32]>> {
        let width: usize = shape.iter().skip(1).product();
        let plain = |rows: Range<usize>| read(rows.start * width..rows.end * width);
        Ok(match self {
            Self::AsIs => plain(rows)?,
            Self::Plus(added) => {
                let mut values = plain(rows)?.into_owned();
                values.iter_mut().for_each(|v| *v -= added);
                Cow::Owned(values)
            }
            Self::Over(divisor) => {
                let mut values = plain(rows)?.into_owned();
                values.iter_mut().for_each(|v| *v *= divisor);
                Cow::Owned(values)
            }
            Self::NegativeExp => {
                let mut values = plain(rows)?.into_owned();
                values.iter_mut().for_each(|v| *v = (-*v).ln());
                Cow::Owned(values)
            }
            Self::HalvesAlternate { d_head } | Self::NeighboursApart { d_head, .. } => {
                let first = rows.start / d_head * d_head;
                let stored = plain(first..rows.end.next_multiple_of(d_head))?;
                if stored.is_empty() {
                    return Ok(stored);
                }
                let mut values = vec![0.0; rows.len() * width];
                values
                    .par_chunks_exact_mut(width)
                    .zip(rows.into_par_iter())
                    .for_each(|(to, row)| {
                        let from = match self {
                            Self::NeighboursApart { d_rotary, .. } => {
                                row_of_halves(row, d_head, d_rotary)
                            }
                            _ => stored_row(row, d_head),
                        } - first;
                        to.copy_from_slice(&stored[from * width..(from + 1) * width]);
                    });
                Cow::Owned(values)
            }
            Self::GroupsApart {
                n_groups,
                n_shared,
                d_head,
            } => {
                let mut values = Vec::with_capacity(rows.len() * width);
                let mut row = rows.start;
                while row < rows.end {
                    // The rows of a head are contiguous.
                    let n_rows = (d_head - row % d_head).min(rows.end - row);
                    let first = row_of_groups(row, n_groups, n_shared, d_head);
                    values.extend_from_slice(&plain(first..first + n_rows)?);
                    row += n_rows;
                }
                Cow::Owned(values)
            }
            Self::Transposed => {
                let n_rows = shape.first().copied().unwrap_or(0);
                let stored = read(0..n_rows * width)?; // [column, row]
                if stored.is_empty() {
                    return Ok(stored);
                }
                let mut values = Vec::with_capacity(rows.len() * width);
                for row in rows {
                    values.extend((0..width).map(|column| stored[column * n_rows + row]));
                }
                Cow::Owned(values)
            }
        })
    }
}

/// Finds row `row` of a rotary projection in a file with interleaved halves: llama.cpp's converter reshapes each head to
/// [half, pair] and swaps the two.
fn stored_row(row: usize, d_head: usize) -> usize {
    let (head, inside) = (row / d_head, row % d_head);
    let (half, pair) = (inside / (d_head / 2), inside % (d_head / 2));
    head * d_head + 2 * pair + half
}

/// Finds row `row` of heads whose rotating neighbours are stored in two halves.
fn row_of_halves(row: usize, d_head: usize, d_rotary: usize) -> usize {
    let (head, inside) = (row / d_head, row % d_head);
    if inside >= d_rotary {
        return row;
    }
    head * d_head + inside % 2 * (d_rotary / 2) + inside / 2
}

/// Finds row `row` of grouped queries, keys and values in a file that stores the three separately.
fn row_of_groups(row: usize, n_groups: usize, n_shared: usize, d_head: usize) -> usize {
    let (head, inside) = (row / d_head, row % d_head);
    let (group, nth) = (head / (n_shared + 2), head % (n_shared + 2));
    let head_in_file = if nth < n_shared {
        group * n_shared + nth
    } else {
        n_groups * nth + group
    };
    head_in_file * d_head + inside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(stored: Stored, rows: Range<usize>, shape: &[usize], file: &[f32]) -> Vec<f32> {
        stored
            .rows(rows, shape, |elements| {
                Ok(Cow::Owned(file[elements].to_vec()))
            })
            .expect("reads")
            .into_owned()
    }

    /// Does what the converter does, step by step: reshapes to [head, half, pair], and swaps the last two.
    fn alternate(meant: &[f32], n_heads: usize, d_head: usize, width: usize) -> Vec<f32> {
        let mut file = Vec::new();
        for head in 0..n_heads {
            for pair in 0..d_head / 2 {
                for half in 0..2 {
                    let row = head * d_head + half * (d_head / 2) + pair;
                    file.extend_from_slice(&meant[row * width..(row + 1) * width]);
                }
            }
        }
        file
    }

    #[test]
    fn interleaved_halves_are_restored() {
        let (n_heads, d_head, width) = (3, 6, 2);
        let meant: Vec<f32> = (0..n_heads * d_head * width).map(|v| v as f32).collect();
        let file = alternate(&meant, n_heads, d_head, width);
        assert_ne!(file, meant);
        let stored = Stored::HalvesAlternate { d_head };
        let shape = [n_heads * d_head, width];
        for (from, to) in [(0, 18), (0, 1), (5, 7), (7, 8), (11, 18), (6, 12)] {
            let found = rows(stored, from..to, &shape, &file);
            assert_eq!(found, meant[from * width..to * width], "{from}..{to}");
        }
    }

    #[test]
    fn neighbours_in_halves_are_restored() {
        // Two heads of six rows, of which four rotate.
        let file: Vec<f32> = [0, 2, 1, 3, 4, 5, 10, 12, 11, 13, 14, 15]
            .map(|row| row as f32)
            .to_vec();
        let stored = Stored::NeighboursApart {
            d_head: 6,
            d_rotary: 4,
        };
        let meant = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15].map(|row| row as f32);
        for (from, to) in [(0, 12), (1, 5), (7, 8)] {
            assert_eq!(rows(stored, from..to, &[12], &file), meant[from..to]);
        }
    }

    #[test]
    fn separate_queries_keys_and_values_are_grouped() {
        // Two groups of three queries, heads of two rows: q q q k v, q q q k v; rows are labelled by head.
        let meant = [1, 2, 3, 71, 81, 4, 5, 6, 72, 82];
        let in_file = [1, 2, 3, 4, 5, 6, 71, 72, 81, 82];
        let by_rows = |heads: [i32; 10]| -> Vec<f32> {
            let rows = heads
                .iter()
                .flat_map(|head| [*head as f32, *head as f32 + 0.5]);
            rows.collect()
        };
        let stored = Stored::GroupsApart {
            n_groups: 2,
            n_shared: 3,
            d_head: 2,
        };
        let (meant, file) = (by_rows(meant), by_rows(in_file));
        for (from, to) in [(0, 20), (3, 4), (5, 9), (7, 18), (19, 20), (4, 4)] {
            let found = rows(stored, from..to, &[20], &file);
            assert_eq!(found, meant[from..to], "{from}..{to}");
        }
    }

    #[test]
    fn a_transposed_matrix_is_transposed_back() {
        let file = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // stored [2, 3], meant [3, 2]
        let all = rows(Stored::Transposed, 0..3, &[3, 2], &file);
        assert_eq!(all, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(rows(Stored::Transposed, 1..2, &[3, 2], &file), [2.0, 5.0]);
    }

    #[test]
    fn a_constant_that_was_added_is_subtracted() {
        assert_eq!(
            rows(Stored::Plus(1.0), 0..2, &[2], &[1.5, 0.0]),
            [0.5, -1.0]
        );
        assert_eq!(
            rows(Stored::Over(0.25), 1..2, &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
            [0.75, 1.0]
        );
        let decays = rows(Stored::NegativeExp, 0..2, &[2], &[-1.0, -2.0]);
        assert_eq!(decays, [0.0, std::f32::consts::LN_2]);
    }
}
