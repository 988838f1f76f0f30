//! Recognises a normaliser without scores: from signs, sums and exact zeros of the pattern.

use super::rows::{Head, median};
use super::{Explained, Fault, Normaliser};

/// Number of rows required to conclude that all rows share one sum.
const FEWEST_ROWS: usize = 3;
/// Smallest share of cells that a sparse normaliser sets to exactly 0.
const ZEROED: f64 = 0.05;
/// A softmax that underflows to 0 has other cells near the smallest float of its type; a sparse normaliser does not.
const SMALLEST: f64 = 1e-6;
/// Allowed deviation of column sums from 1.
const COLUMN: f64 = 1e-2;

/// Number of rows required to conclude anything about columns.
const FEWEST_COLUMNS: usize = 3;

pub fn explain(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    if let by @ Some(_) = signed(head, tolerance) {
        return by;
    }
    let off = head
        .rows
        .iter()
        .map(|row| (row.sum() - 1.0).abs())
        .fold(0.0, f64::max);
    if off > tolerance || head.rows.is_empty() || is_negative(head) {
        return None;
    }
    let n_cells = head.n_cells();
    let said = |by| Some(Explained { by, off, n_cells });
    if is_doubly_stochastic(head) {
        return said(Normaliser::Sinkhorn);
    }
    if head.has_own_zeros && is_sparse(head) {
        return said(Normaliser::Sparse);
    }
    None
}

fn is_negative(head: &Head<'_>) -> bool {
    head.rows
        .iter()
        .any(|row| row.found.iter().any(|p| *p < 0.0))
}

/// Differential attention: cells of both signs, in rows that share one sum of at most 1.
pub fn signed(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    let is_small = |p: &f64| p.abs() <= 1.0 + tolerance;
    let fits = head.rows.iter().all(|row| row.found.iter().all(is_small));
    if head.rows.len() < FEWEST_ROWS || !fits || !is_negative(head) {
        return None;
    }
    let mut sums: Vec<f64> = head.rows.iter().map(super::HeadRow::sum).collect();
    let sum = median(&mut sums);
    let off = sums.iter().map(|s| (s - sum).abs()).fold(0.0, f64::max);
    let is_difference = off <= tolerance && sum < 1.0 - tolerance && sum > -1.0;
    is_difference.then_some(Explained {
        by: Normaliser::Differential { lambda: 1.0 - sum },
        off,
        n_cells: head.n_cells(),
    })
}

fn is_doubly_stochastic(head: &Head<'_>) -> bool {
    if !head.is_full || head.rows.len() != head.n_keys || head.n_keys < FEWEST_COLUMNS {
        return false;
    }
    let mut sums = vec![0.0; head.n_keys];
    for row in &head.rows {
        sums.iter_mut()
            .zip(&row.found)
            .for_each(|(sum, p)| *sum += p);
    }
    let is_spread = head
        .rows
        .iter()
        .any(|row| row.found.iter().all(|p| *p < 0.99));
    // Uniform rows are doubly stochastic anyway.
    let is_even = head.rows.iter().all(|row| {
        let even = 1.0 / row.found.len() as f64;
        row.found.iter().all(|p| (p - even).abs() <= 0.02 * even)
    });
    is_spread && !is_even && sums.iter().all(|sum| (sum - 1.0).abs() <= COLUMN)
}

/// Whether rows contain exact zeros at different keys, while the nonzero cells are far from 0.
fn is_sparse(head: &Head<'_>) -> bool {
    let (mut n_zero, mut n, mut smallest, mut n_inner) = (0usize, 0usize, f64::INFINITY, 0usize);
    for row in &head.rows {
        let is_used = |p: &&f64| **p != 0.0;
        let (Some(first), Some(last)) = (
            row.found.iter().position(|p| *p != 0.0),
            row.found.iter().rposition(|p| *p != 0.0),
        ) else {
            continue;
        };
        n += row.found.len();
        n_zero += row.found.iter().filter(|p| **p == 0.0).count();
        // A window has zeros at the ends of a row, not in between.
        n_inner += row.found[first..=last]
            .iter()
            .filter(|p| **p == 0.0)
            .count();
        smallest = row
            .found
            .iter()
            .filter(is_used)
            .copied()
            .fold(smallest, f64::min);
    }
    n_inner > 0 && n_zero as f64 >= ZEROED * n as f64 && smallest > SMALLEST
}

/// Recognises a softmax over all keys whose hidden cells were zeroed afterwards: rows that do not see every key sum to less than
/// 1.
pub fn fault(head: &Head<'_>, tolerance: f64) -> Option<Explained<Fault>> {
    if is_negative(head) {
        return None;
    }
    let close = |sum: f64| (sum - 1.0).abs() <= tolerance;
    let (whole, part): (Vec<_>, Vec<_>) = head
        .rows
        .iter()
        .partition(|row| row.keys.len() == head.n_keys);
    let whole_off = whole
        .iter()
        .map(|row| (row.sum() - 1.0).abs())
        .fold(0.0, f64::max);
    let n_short = part
        .iter()
        .filter(|row| row.sum() < 1.0 && !close(row.sum()))
        .count();
    let is_after = !whole.is_empty()
        && whole_off <= tolerance
        && part.len() >= FEWEST_ROWS
        && part.iter().all(|row| row.sum() <= 1.0 + tolerance)
        && 2 * n_short > part.len();
    if is_after {
        return Some(Explained {
            by: Fault::MaskedAfter,
            off: whole_off,
            n_cells: head.n_cells(),
        });
    }
    // All rows share one sum that is not 1.
    let mut sums: Vec<f64> = head.rows.iter().map(super::HeadRow::sum).collect();
    let sum = median(&mut sums);
    let off = sums.iter().map(|s| (s - sum).abs()).fold(0.0, f64::max);
    (head.rows.len() >= FEWEST_ROWS && off <= tolerance * sum && !close(sum) && sum > 0.0).then(
        || Explained {
            by: Fault::Scaled(sum),
            off,
            n_cells: head.n_cells(),
        },
    )
}

/// The p of a dropout: rows with one visible key are 0 or 1 / (1 − p), other cells are zeroed at the same rate, and rows sum to 1
/// on average.
pub fn dropout(head: &Head<'_>) -> Option<f64> {
    if is_negative(head) || head.rows.len() < FEWEST_DROPPED {
        return None;
    }
    let cells = || head.rows.iter().flat_map(|row| row.found.iter());
    let (n, n_zero) = (
        cells().count() as f64,
        cells().filter(|p| **p == 0.0).count() as f64,
    );
    let p = n_zero / n;
    if !(0.005..0.95).contains(&p) {
        return None;
    }
    // The scatter of the row sums around 1 must match dropout.
    let (mut off, mut variance, mut n_above) = (0.0, 0.0, 0);
    for row in &head.rows {
        let of_squares: f64 = row.found.iter().map(|x| x * x).sum();
        off += row.sum() - 1.0;
        variance += p * of_squares;
        n_above += usize::from(row.sum() > 1.0 + 1e-3);
    }
    let is_scattered = off.abs() <= 4.0 * variance.sqrt();
    // The sum of a row that lost no cell is 1 / (1 − p).
    let whole = head.rows.iter().filter(|row| row.keys.len() >= 2);
    let whole = whole.filter(|row| row.found.iter().all(|p| *p != 0.0));
    let factors: Vec<f64> = whole.map(super::HeadRow::sum).collect();
    let factor = median(&mut factors.clone());
    let agree = factors.iter().all(|f| (f - factor).abs() <= 1e-3 * factor);
    let exact = 1.0 - 1.0 / factor;
    let spread = 4.0 * (p * (1.0 - p) / n).sqrt();
    let fits = factors.len() >= 2 && agree && (exact - p).abs() <= spread + 2.0 / n;
    (is_scattered && n_above > 0 && fits).then_some(exact)
}

/// Number of rows required to conclude that there is dropout.
const FEWEST_DROPPED: usize = 6;
