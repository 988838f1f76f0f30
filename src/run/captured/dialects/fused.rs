//! Where queries, keys and values are in the output of a projection that has all three, told by the numbers.
//!
//! Modules of one name differ here: `query_key_value` of GPT-NeoX and BLOOM has the query, key and value of a head side by side, that of a
//! new Falcon the queries, key and value of a key head, and that of an engine that loaded either of them all queries, then all keys, then
//! all values. A first position sees itself alone, so its z is its value: only the right columns give that.

use std::ops::Range;

/// The columns of queries, keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    pub parts: [Vec<Range<usize>>; 3],
    pub words: String,
}

/// Largest relative difference between z and the values that count as equal: what 16 bits leave.
const EQUAL: f64 = 0.02;

/// Least relative difference of any other columns, as a multiple of [`EQUAL`].
const APART: f64 = 5.0;

/// The columns by the first position's row and z; `None` if none, or more than one choice, gives z.
pub(super) fn columns_by_numbers(row: &[f32], z: &[f32]) -> Option<Columns> {
    let mut near = Vec::new();
    let mut least = f64::INFINITY;
    for (columns, values) in candidates(row.len(), z.len()) {
        let apart = relative(row, z, &values);
        if apart <= EQUAL {
            near.push(columns);
        } else {
            least = least.min(apart);
        }
    }
    // Choices with equal columns are one.
    near.dedup_by(|a, b| a.parts == b.parts);
    match near.len() {
        1 if least > APART * EQUAL => near.pop(),
        _ => None,
    }
}

/// Relative difference between z and the values at some columns.
fn relative(row: &[f32], z: &[f32], values: &[usize]) -> f64 {
    let (mut apart, mut size) = (0.0, 0.0);
    for (z, at) in z.iter().zip(values) {
        apart += f64::from(z - row[*at]).powi(2);
        size += f64::from(*z).powi(2);
    }
    let found = (apart / size).sqrt();
    if found.is_finite() {
        found
    } else {
        f64::INFINITY
    }
}

/// Every way to divide a row, and the column of the value that each element of z has to be.
fn candidates(width: usize, of_z: usize) -> Vec<(Columns, Vec<usize>)> {
    let rest = width.saturating_sub(of_z);
    let of_keys = rest / 2;
    if of_keys == 0 || !rest.is_multiple_of(2) || !of_z.is_multiple_of(of_keys) {
        return Vec::new();
    }
    let n_shared = of_z / of_keys;
    let mut all = Vec::new();
    for n_kv_heads in (1..=of_keys).filter(|n| of_keys.is_multiple_of(*n)) {
        let d_head = of_keys / n_kv_heads;
        // One group of all heads is a block each of queries, keys and values.
        let mut groupings = vec![1];
        groupings.extend((2..=n_kv_heads).filter(|n| n_kv_heads.is_multiple_of(*n)));
        for n_groups in groupings {
            for keys_first in [true, false] {
                all.push(divided(
                    (n_groups, n_kv_heads),
                    (n_shared, d_head),
                    keys_first,
                ));
            }
        }
    }
    all
}

/// A row in groups, each with its queries, then its keys and values in either order.
fn divided(
    (n_groups, n_kv_heads): (usize, usize),
    (n_shared, d_head): (usize, usize),
    keys_first: bool,
) -> (Columns, Vec<usize>) {
    let of_keys = n_kv_heads / n_groups * d_head;
    let of_queries = n_shared * of_keys;
    let of_group = of_queries + 2 * of_keys;
    let mut parts: [Vec<Range<usize>>; 3] = Default::default();
    let mut values = Vec::new();
    for group_idx in 0..n_groups {
        let start = group_idx * of_group;
        let first = start + of_queries;
        let second = first + of_keys;
        let (keys, of_value) = if keys_first {
            (first, second)
        } else {
            (second, first)
        };
        parts[0].push(start..first);
        parts[1].push(keys..keys + of_keys);
        parts[2].push(of_value..of_value + of_keys);
        let heads = n_shared * n_kv_heads / n_groups;
        for head_idx in 0..heads {
            let from = of_value + head_idx / n_shared * d_head;
            values.extend(from..from + d_head);
        }
    }
    let order = if keys_first { "q, k, v" } else { "q, v, k" };
    let words = match n_groups {
        1 => format!("{order} one after another"),
        n => format!("{order} of {n} groups one after another"),
    };
    (Columns { parts, words }, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a period: other columns give other values.
    fn row(n: usize) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..n).map(|_| random.f32() - 0.5).collect()
    }

    /// Columns where z is the values of some division.
    fn found(
        (n_groups, n_kv_heads): (usize, usize),
        (n_shared, d_head): (usize, usize),
        keys_first: bool,
    ) -> (Option<Columns>, Columns) {
        let row = row((n_shared + 2) * n_kv_heads * d_head);
        let (columns, values) = divided((n_groups, n_kv_heads), (n_shared, d_head), keys_first);
        let z: Vec<f32> = values.iter().map(|at| row[*at]).collect();
        (columns_by_numbers(&row, &z), columns)
    }

    #[test]
    fn heads_groups_and_blocks_are_told_apart() {
        // By head, by key head, in blocks with shared keys and without, and in groups with values first.
        for (groups, heads, keys_first) in [
            ((4, 4), (1, 8), true),
            ((2, 2), (2, 8), true),
            ((1, 2), (2, 8), true),
            ((1, 4), (1, 8), true),
            ((4, 8), (1, 4), false),
        ] {
            let (found, expected) = found(groups, heads, keys_first);
            let found = found.unwrap_or_else(|| panic!("{groups:?}"));
            assert_eq!(found.parts, expected.parts, "{groups:?}");
        }
    }

    #[test]
    fn numbers_that_fit_nothing_or_everything_decide_nothing() {
        let row = row(96);
        let z: Vec<f32> = row[..32].iter().map(|value| value + 3.0).collect();
        assert_eq!(columns_by_numbers(&row, &z), None);
        assert_eq!(columns_by_numbers(&[1.0; 96], &[1.0; 32]), None);
        assert_eq!(columns_by_numbers(&row, &[0.0; 32]), None);
        assert_eq!(columns_by_numbers(&row, &row[..40]), None);
    }
}
