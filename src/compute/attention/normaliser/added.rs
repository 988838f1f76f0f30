//! What was added to a pattern behind its softmax: part of a mixture, or a mask that came too late.

use super::by_design::softmax;
use super::rows::{Head, HeadRow};

/// Values down to here, or beyond, are those of a mask.
const HIDES: f64 = -1e3;
/// Fewest rows that show a mask.
const FEWEST_ROWS: usize = 3;
/// Rounding of a sum, as a share of its larger part.
const ROUNDING: f64 = 1e-6;

/// The nature of an added matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// Without negative cells: part of a mixture.
    Matrix,
    /// Two values, divided as a mask of later keys or of padding divides cells; or values that hide.
    Mask,
    /// Some cells are negative: part of a mixture, such as a learned graph, or a bias that came too late.
    Signed,
}

/// A pattern that is a factor times the softmax, plus what was added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sum {
    pub weight: f64,
    pub added: Added,
    pub off: f64,
}

/// Whether a head is a multiple of its softmax plus a matrix that is known. // added: [query, key]
pub fn explain(head: &Head<'_>, added: &[f32], tolerance: f64) -> Option<Sum> {
    let value =
        |row: &HeadRow, key_idx: usize| f64::from(added[row.query_idx * head.n_keys + key_idx]);
    let largest = head
        .rows
        .iter()
        .flat_map(|row| row.keys.iter().map(|key_idx| value(row, *key_idx)))
        .filter(|value| value.abs() < -HIDES)
        .fold(0.0f64, |most, value| most.max(value.abs()));
    // What is left of each cell, and the softmax that it should be a multiple of.
    let mut cells = Vec::new();
    for row in &head.rows {
        let expected = softmax(row);
        let most = expected.iter().copied().fold(0.0, f64::max);
        for ((key_idx, found), p) in row.keys.iter().zip(&row.found).zip(expected) {
            let value = value(row, *key_idx);
            if value.abs() < -HIDES {
                cells.push((found - value, p, most));
            }
        }
    }
    let (with, of) = cells.iter().fold((0.0, 0.0), |(with, of), (rest, p, _)| {
        (with + rest * p, of + p * p)
    });
    let weight = with / of;
    if head.rows.len() < FEWEST_ROWS || !weight.is_finite() || weight <= 0.0 {
        return None;
    }
    let off = cells
        .iter()
        .map(|(rest, p, most)| (rest - weight * p).abs() / (weight * most))
        .fold(0.0, f64::max);
    (off <= tolerance + ROUNDING * largest.max(1.0) / weight.min(1.0)).then(|| Sum {
        weight,
        added: kind(head, &value),
        off,
    })
}

fn kind(head: &Head<'_>, value: &dyn Fn(&HeadRow, usize) -> f64) -> Added {
    let cells = || {
        head.rows
            .iter()
            .flat_map(|row| row.keys.iter().map(move |key_idx| (row, *key_idx)))
    };
    let (least, most) = cells().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), (row, key_idx)| {
            let value = value(row, key_idx);
            (least.min(value), most.max(value))
        },
    );
    if least < HIDES {
        return Added::Mask;
    }
    let is_two = most > least
        && cells().all(|(row, key_idx)| {
            let value = value(row, key_idx);
            value == least || value == most
        });
    if is_two {
        let is_high = |row: &HeadRow, key_idx: usize| value(row, key_idx) == most;
        let of_later = |sign: bool| {
            cells()
                .all(|(row, key_idx)| is_high(row, key_idx) == ((key_idx <= row.query_idx) == sign))
        };
        let mut of_keys = vec![None; head.n_keys];
        let is_of_keys = cells().all(|(row, key_idx)| {
            *of_keys[key_idx].get_or_insert(is_high(row, key_idx)) == is_high(row, key_idx)
        });
        if of_later(true) || of_later(false) || is_of_keys && is_padding(&of_keys) {
            return Added::Mask;
        }
    }
    if least < 0.0 {
        Added::Signed
    } else {
        Added::Matrix
    }
}

/// Whether keys are divided as padding at one end of the row divides them. A first key that stands alone is the hub of a graph.
fn is_padding(is_high: &[Option<bool>]) -> bool {
    let keys: Vec<bool> = is_high.iter().flatten().copied().collect();
    let n_high = keys.iter().filter(|is_high| **is_high).count();
    let n_turns = keys.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let is_hub = n_high == 1 && keys[0];
    n_turns == 1 && !is_hub
}

#[cfg(test)]
mod tests {
    use super::super::{Fault, Normaliser};
    use super::*;
    use crate::attention::{Mask, Visibility};

    const N: usize = 6;

    /// The sum of 0.5 times a softmax and `added`, told of as such.
    fn of(added: &dyn Fn(usize, usize) -> f32, weight: f32) -> Option<Sum> {
        let score = |i: usize, j: usize| ((i * 7 + j * 5) % 4) as f32 * 0.6;
        let sum = |i: usize| (0..N).map(|j| score(i, j).exp()).sum::<f32>();
        let matrix = |cell: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..N * N).map(|at| cell(at / N, at % N)).collect()
        };
        let pattern = matrix(&|i, j| weight * score(i, j).exp() / sum(i) + added(i, j));
        let (scores, added) = (matrix(&score), matrix(added));
        let mask = Mask {
            causal: false,
            window: None,
            streaming: None,
            pools: None,
        };
        let visibility = Visibility::of_self(mask, N, None);
        let head = Head::of(&visibility, &pattern, Some(&scores), None, &|_, _| true);
        explain(&head, &added, 1e-5)
    }

    #[test]
    fn a_mixture_is_told_from_a_mask() {
        // A graph and the kernel of its distances.
        let near = |i: usize, j: usize| f32::from(u8::from((i * j) % 3 == 1));
        let mixed = of(
            &|i, j| 0.25 * near(i, j) + 0.1 * (-(i as f32 - j as f32).abs()).exp(),
            0.5,
        );
        let mixed = mixed.expect("a mixture");
        assert_eq!(mixed.added, Added::Matrix);
        assert!((mixed.weight - 0.5).abs() < 1e-4, "{mixed:?}");
        assert_eq!(
            of(&|i, j| 0.5 * near(i, j), 1.0).map(|sum| sum.added),
            Some(Added::Matrix)
        );
        for mask in [
            &(|i: usize, j: usize| f32::from(u8::from(j <= i))) as &dyn Fn(usize, usize) -> f32,
            &|i, j| if j > i { -1e9 } else { 0.0 },
            &|_, j| f32::from(u8::from(j < 4)),
        ] {
            assert_eq!(of(mask, 1.0).map(|sum| sum.added), Some(Added::Mask));
        }
        // A hub that every token sees, at the start and within.
        for hub in [0, 3] {
            let star = |_, j: usize| f32::from(u8::from(j == hub));
            assert_eq!(of(&star, 1.0).map(|sum| sum.added), Some(Added::Matrix));
        }
        // Distances, a graph's Laplacian, and the subtraction of a mean.
        for signed in [
            &(|i: usize, j: usize| -0.3 * (i as f32 - j as f32).abs())
                as &dyn Fn(usize, usize) -> f32,
            &|i, j| f32::from(u8::from(i == j)) - 0.4 * near(i, j),
            &|_, _| -1.0 / N as f32,
        ] {
            assert_eq!(of(signed, 1.0).map(|sum| sum.added), Some(Added::Signed));
        }
    }

    #[test]
    fn what_is_left_has_to_be_the_softmax() {
        let head_of = |pattern: &[f32]| {
            let mask = Mask {
                causal: false,
                window: None,
                streaming: None,
                pools: None,
            };
            let visibility = Visibility::of_self(mask, 3, None);
            let scores = [0.0, 1.0, 2.0, 2.0, 0.0, 1.0, 1.0, 2.0, 0.0];
            explain(
                &Head::of(&visibility, pattern, Some(&scores), None, &|_, _| true),
                &[0.1; 9],
                1e-5,
            )
        };
        assert_eq!(
            head_of(&[0.3, 0.3, 0.7, 0.5, 0.3, 0.5, 0.4, 0.4, 0.5]),
            None
        );
        assert!(Fault::MaskAdded.advice().contains("before the softmax"));
        for is_signed in [false, true] {
            let mixture = Normaliser::Mixture {
                weight: 1.0,
                is_signed,
            }
            .to_string();
            assert!(mixture.contains("behind the softmax"), "{mixture}");
            assert_eq!(mixture.contains("negative cells"), is_signed, "{mixture}");
        }
    }
}
