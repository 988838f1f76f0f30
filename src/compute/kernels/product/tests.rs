//! Products of every form against sums in f64, and against each other bit by bit.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn values(n: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| (((i + seed) * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
    (0..n).map(value).collect()
}

/// The right side of `n_in` inputs and `n_out` outputs: stored by output, or the same numbers by input.
fn stored<T: Stored>(by_output: &[T], n_in: usize, n_out: usize) -> Vec<T> {
    let at = |i: usize| by_output[i % n_out * n_in + i / n_out];
    (0..n_in * n_out).map(at).collect()
}

#[test]
fn a_product_of_strided_views_sums_over_the_inner_dimension() {
    let left: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let right: Vec<f32> = (0..8).map(|v| 1.0 - v as f32).collect();
    // Columns 1..3 of a 3 × 4 matrix times the transpose of a 4 × 2 matrix.
    let left = Matrix::new(&left[1..], 3, 2, 4, 1);
    let right = Matrix::row_major(&right, 4, 2).transposed();
    let mut out = vec![100.0; 3 * 5];
    let mut to = MatrixMut::new(&mut out, 3, 4, 5);
    product(&mut to, left, right, false, Threads::One);
    for row_idx in 0..3 {
        for col_idx in 0..4 {
            let expected: f32 = (0..2)
                .map(|k| (row_idx * 4 + 1 + k) as f32 * (1.0 - (col_idx * 2 + k) as f32))
                .sum();
            assert_eq!(out[row_idx * 5 + col_idx], expected);
        }
        let padding = out.get(row_idx * 5 + 4);
        assert_eq!(padding, Some(&100.0), "padding of a row is left alone");
    }
}

#[test]
fn every_level_and_form_gives_the_sums() {
    // Rows, inputs, outputs: one of each, ends of panels and of blocks of terms, more rows than are laid out at once, and shapes in
    // which rows or columns lie across vectors.
    let shapes = [
        [1, 1, 1],
        [3, 0, 5],
        [7, 5, 130],
        [50, 129, 47],
        [16, 300, 97],
        [200, 128, 96],
        [130, 257, 33],
        [1030, 40, 50],
        [1100, 20, 3],
        [140, 1100, 50],
    ];
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for [n_rows, n_in, n_out] in shapes {
            let left = values(n_rows * n_in, 3);
            let by_output = values(n_out * n_in, 5);
            let by_input = stored(&by_output, n_in, n_out);
            let bias = values(n_out, 7);
            let mut found = Vec::new();
            for right in [
                Matrix::row_major(&by_output, n_out, n_in).transposed(),
                Matrix::row_major(&by_input, n_in, n_out),
            ] {
                for threads in [Threads::One, Threads::Pool] {
                    let mut out = values(n_rows * n_out, 11);
                    let mut to = MatrixMut::new(&mut out, n_rows, n_out, n_out);
                    let left = Matrix::row_major(&left, n_rows, n_in);
                    let onto = Onto::Bias(&bias);
                    assert!(product_at(
                        level,
                        &mut to,
                        left,
                        right,
                        onto,
                        threads,
                        &|_| true
                    ));
                    found.push(out);
                }
            }
            let shape = (level, n_rows, n_in, n_out);
            assert!(found.iter().all(|out| *out == found[0]), "{shape:?}");
            for (at, found) in found[0].iter().enumerate() {
                let (row_idx, column) = (at / n_out, at % n_out);
                let row = &left[row_idx * n_in..][..n_in];
                let products = row.iter().zip(&by_output[column * n_in..][..n_in]);
                let sum: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let apart = (f64::from(*found) - sum - f64::from(bias[column])).abs();
                let longest = n_in.max(300) as f64;
                assert!(apart <= 1e-7 * longest, "{shape:?}: {apart}");
            }
        }
    }
}

#[test]
fn a_row_is_bit_identical_alone_and_with_others() {
    let n_most = 220;
    for n_in in [1, 2, 33, 128, 300, 513, 1100] {
        for n_out in [1, 2, 16, 31, 65, 130, 400] {
            let left = values(n_most * n_in, 0);
            let by_output = values(n_out * n_in, 1);
            let by_input = stored(&by_output, n_in, n_out);
            let before = values(n_out, 2);
            for right in [
                Matrix::row_major(&by_output, n_out, n_in).transposed(),
                Matrix::row_major(&by_input, n_in, n_out),
            ] {
                let of = |n_rows: usize| {
                    let mut out = before.repeat(n_rows);
                    let left = Matrix::row_major(&left[..n_rows * n_in], n_rows, n_in);
                    let mut to = MatrixMut::new(&mut out, n_rows, n_out, n_out);
                    product(&mut to, left, right, true, Threads::Pool);
                    out
                };
                let all = of(n_most);
                let mut first = vec![before[0]; n_most];
                let left = Matrix::row_major(&left, n_most, n_in);
                let mut to = MatrixMut::new(&mut first, n_most, 1, 1);
                product(&mut to, left, right.columns(0..1), true, Threads::One);
                assert!(first.iter().eq(all.iter().step_by(n_out)), "one output");
                for n_rows in [1, 2, 7, 40, 99, 145] {
                    assert!(
                        of(n_rows) == all[..n_rows * n_out],
                        "{n_rows} x {n_in} x {n_out}"
                    );
                }
            }
        }
    }
}

#[test]
fn numbers_that_are_widened_on_the_way_give_the_bits_of_wide_ones() {
    for [n_rows, n_in, n_out] in [[1, 300, 70], [30, 129, 200], [400, 200, 60]] {
        let left = values(n_rows * n_in, 3);
        let bits: Vec<u16> = values(n_out * n_in, 5)
            .iter()
            .map(|value| (value.to_bits() >> 16) as u16)
            .collect();
        let wide: Vec<f32> = bits.iter().map(|bits| bits.widen()).collect();
        let (bits_by_input, wide_by_input) =
            (stored(&bits, n_in, n_out), stored(&wide, n_in, n_out));
        let forms = [
            (
                Matrix::row_major(&bits, n_out, n_in).transposed(),
                Matrix::row_major(&wide, n_out, n_in).transposed(),
            ),
            (
                Matrix::row_major(&bits_by_input, n_in, n_out),
                Matrix::row_major(&wide_by_input, n_in, n_out),
            ),
        ];
        for (narrow, wide) in forms {
            let left = Matrix::row_major(&left, n_rows, n_in);
            let mut found = [(); 2].map(|()| vec![0.0; n_rows * n_out]);
            let [by_bits, by_wide] = &mut found;
            let mut to = MatrixMut::new(by_bits, n_rows, n_out, n_out);
            product_onto(&mut to, left, narrow, Onto::Nothing, Threads::Pool, &|_| {
                true
            });
            let mut to = MatrixMut::new(by_wide, n_rows, n_out, n_out);
            product(&mut to, left, wide, false, Threads::Pool);
            assert!(found[0] == found[1], "{n_rows} x {n_in} x {n_out}");
        }
    }
}

#[test]
fn a_product_counts_its_work_and_stops_when_asked() {
    let (n_rows, n_in, n_out) = (1500, 64, 800);
    let (left, right) = (values(n_rows * n_in, 0), values(n_in * n_out, 1));
    let mut out = vec![0.0; n_rows * n_out];
    let done = AtomicU64::new(0);
    let mut multiply = |did: &(dyn Fn(u64) -> bool + Sync)| {
        let mut to = MatrixMut::new(&mut out, n_rows, n_out, n_out);
        let left = Matrix::row_major(&left, n_rows, n_in);
        let right = Matrix::row_major(&right, n_in, n_out);
        product_onto(&mut to, left, right, Onto::Nothing, Threads::Pool, did)
    };
    assert!(multiply(&|n| {
        done.fetch_add(n, Ordering::Relaxed);
        true
    }));
    assert_eq!(done.load(Ordering::Relaxed), (n_rows * n_in * n_out) as u64);
    assert!(!multiply(&|_| false));
}

#[test]
#[should_panic(expected = "exceeds")]
fn a_view_beyond_its_slice_panics() {
    Matrix::new(&[0.0; 5], 2, 3, 3, 1);
}
