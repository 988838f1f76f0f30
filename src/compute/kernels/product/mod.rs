//! The matrix product.
//!
//! One side lies across vectors, in panels of a few of them; each line of the other side is multiplied with them term by term.
//! Which side lies across is a question of speed alone: an element of the result is the same sum in the same order either way.

mod lines;
mod matrix;
mod side;
#[cfg(test)]
mod tests;
mod tile;

use std::cell::RefCell;

use rayon::prelude::*;

pub use matrix::{Matrix, MatrixMut};

use self::lines::Lines;
use self::side::{Form, Side, panel_width};
use self::tile::{Buffer, TERMS_AT_ONCE, Task};
use super::simd::Level;
use super::stored::Stored;
use super::tiles::Tile;

/// Terms that are summed before their sum is added to the result.
pub(super) const TERMS: usize = 128;
/// Rows that are laid out at once.
const ROWS_AT_ONCE: usize = 1024;
/// Most values of columns that a task lays out: what the caches of a core hold.
const MOST_OF_COLUMNS: usize = 1 << 19;
/// Most columns in a task.
const MOST_COLUMNS: usize = 384;
/// Fewest columns in a task, unless there are fewer.
const FEWEST_COLUMNS: usize = 16;
/// Multiply-adds below which a product is not divided among threads.
const FEW: usize = 1 << 16;

thread_local! {
    /// Kept between products: fresh memory would be made page by page in each.
    static BUFFER: RefCell<Buffer> = RefCell::default();
}

/// Whether a product may use the thread pool; `One` inside work that already does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

/// What a product is added to.
#[derive(Debug, Clone, Copy)]
pub enum Onto<'a> {
    Nothing,
    /// What the output holds.
    Itself,
    /// One value for each column, the same in all rows.
    Bias(&'a [f32]),
}

/// `out = left · right`, or `out += left · right` when `accumulate`.
///
/// The order of an element's sum depends only on the number of its terms: a row is bit-identical with any number of threads, and
/// whether it is multiplied alone or with others.
///
/// # Panics
/// When the shapes do not match.
pub fn product(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    let onto = if accumulate {
        Onto::Itself
    } else {
        Onto::Nothing
    };
    product_onto(out, left, right, onto, threads, &|_| true);
}

/// Like [`product`], with numbers as a file stores them, which are widened a part at a time.
///
/// `did` is given the number of multiply-adds that were done, a part of the product at a time (about 10 ms), and says whether to
/// go on. Returns whether the whole product was computed; `out` holds anything if not.
///
/// # Panics
/// When the shapes do not match.
pub fn product_onto<T: Stored>(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_, T>,
    onto: Onto<'_>,
    threads: Threads,
    did: &(dyn Fn(u64) -> bool + Sync),
) -> bool {
    product_at(Level::current(), out, left, right, onto, threads, did)
}

/// Like [`product_onto`], with given instructions.
fn product_at<T: Stored>(
    level: Level,
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_, T>,
    onto: Onto<'_>,
    threads: Threads,
    did: &(dyn Fn(u64) -> bool + Sync),
) -> bool {
    assert_eq!(
        (left.n_rows, left.n_cols, right.n_cols),
        (out.n_rows, right.n_rows, out.n_cols),
        "shapes of a product do not fit"
    );
    if let Onto::Bias(bias) = onto {
        assert_eq!(bias.len(), out.n_cols, "one bias for each column");
    }
    let (rows, columns) = (Lines::of_rows(left), Lines::of_columns(right));
    let n_multiplied = rows.n_terms * rows.n_lines * columns.n_lines;
    let threads = if n_multiplied < FEW {
        Threads::One
    } else {
        threads
    };
    let form = if columns.are_whole() && is_cheaper_across(&rows, &columns) {
        Form::Rows
    } else {
        Form::Columns
    };
    let n_rows = ROWS_AT_ONCE.min(rows.n_lines).max(1);
    let n_columns = columns_at_once(level, form, &columns, threads);
    let n_chunks = rows.n_lines.div_ceil(n_rows);
    // Tiles are ordered by band of columns; a chunk of rows is multiplied with all bands.
    let mut of_chunk: Vec<Vec<(usize, Tile<'_>)>> = (0..n_chunks).map(|_| Vec::new()).collect();
    for (nth, tile) in out.tiles(n_rows, n_columns).into_iter().enumerate() {
        of_chunk[nth % n_chunks].push((nth / n_chunks * n_columns, tile));
    }
    of_chunk.into_iter().enumerate().all(|(nth, tiles)| {
        let first = nth * n_rows;
        let rows = rows.some(first..rows.n_lines.min(first + n_rows));
        let rows = Side::of(level, form, &rows, threads);
        let multiply = |(first, out): (usize, Tile<'_>)| {
            let here = first..first + out.n_cols();
            let n_multiplied = columns.n_terms * rows.n_lines() * here.len();
            BUFFER.with_borrow_mut(|buffer| {
                level.run(Task {
                    rows: &rows,
                    columns: columns.some(here.clone()),
                    onto: match onto {
                        Onto::Bias(bias) => Onto::Bias(&bias[here]),
                        onto => onto,
                    },
                    out,
                    buffer,
                });
            });
            did(n_multiplied as u64)
        };
        match threads {
            Threads::One => tiles.into_iter().all(multiply),
            Threads::Pool => tiles.into_par_iter().map(multiply).all(|goes_on| goes_on),
        }
    })
}

/// Whether rows should lie across vectors instead of columns. Lines whose terms are neighbours have to be turned for that, and the
/// result back, which takes as long for each value.
fn is_cheaper_across<T: Stored>(rows: &Lines<'_, f32>, columns: &Lines<'_, T>) -> bool {
    let turned = rows.n_lines * (rows.n_terms + columns.n_lines);
    turned < columns.n_lines * columns.n_terms
}

/// Columns in a task: some tasks for each thread, and whole panels.
fn columns_at_once<T: Stored>(
    level: Level,
    form: Form,
    columns: &Lines<'_, T>,
    threads: Threads,
) -> usize {
    let n_tasks = match threads {
        Threads::One => 1,
        Threads::Pool => 4 * rayon::current_num_threads(),
    };
    let (unit, n_terms) = match form {
        Form::Rows => (FEWEST_COLUMNS, columns.n_terms),
        Form::Columns => (panel_width(level), columns.n_terms.min(TERMS_AT_ONCE)),
    };
    let most = (MOST_OF_COLUMNS / n_terms.max(1)).clamp(unit, MOST_COLUMNS);
    let each = columns.n_lines.div_ceil(n_tasks).clamp(1, most);
    if each == most {
        most / unit * unit
    } else {
        each.next_multiple_of(unit)
    }
}
