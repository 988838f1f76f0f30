//! Products of a few rows with weights that are repacked once for many such products: for generating text token by token.
//!
//! The results are bit-identical to those of [`product`]: sums have the same terms in the same order, and are split at the same
//! terms. All weights are read once, in order, so a product is limited by memory bandwidth.

use rayon::prelude::*;

use super::Aligned;
use super::product::TERMS;
use super::simd::{Kernel, Lanes, Level};

/// Outputs per panel: a few vectors at every level.
const PANEL: usize = 64;
/// Rows multiplied with a panel at once.
const ROWS: usize = 4;
/// Weights per parallel task.
const TASK: usize = 1 << 16;

/// Weights in panels of `PANEL` outputs, ordered by input. // [panel][input][output of the panel]
#[derive(Debug, Clone)]
pub struct FewRows {
    data: Aligned,
    n_out: usize,
    n_in: usize,
}

impl FewRows {
    /// Repacks weights. // weight: [n_out, n_in], or [n_in, n_out] when `is_input_major`
    pub fn of(weight: &[f32], n_out: usize, n_in: usize, is_input_major: bool) -> Self {
        let mut data = Aligned::zeros(n_out.div_ceil(PANEL) * n_in * PANEL);
        let panels = data.par_chunks_mut((n_in * PANEL).max(1)).enumerate();
        panels.for_each(|(panel_idx, panel)| {
            let first = panel_idx * PANEL;
            let n = PANEL.min(n_out - first);
            if is_input_major {
                for (to, from) in panel.chunks_mut(PANEL).zip(weight.chunks(n_out)) {
                    to[..n].copy_from_slice(&from[first..first + n]);
                }
                return;
            }
            for (output_idx, from) in weight[first * n_in..].chunks(n_in).take(n).enumerate() {
                let to = panel[output_idx..].iter_mut().step_by(PANEL);
                to.zip(from).for_each(|(to, from)| *to = *from);
            }
        });
        Self { data, n_out, n_in }
    }

    /// The weights in their original order. // [n_out, n_in], or [n_in, n_out] when `is_input_major`
    pub fn values(&self, is_input_major: bool) -> Vec<f32> {
        let mut values = vec![0.0; self.n_out * self.n_in];
        let panels = self.data.chunks((self.n_in * PANEL).max(1)).enumerate();
        for (panel_idx, panel) in panels {
            let first = panel_idx * PANEL;
            for (input_idx, row) in panel.chunks(PANEL).enumerate() {
                for (nth, value) in row[..PANEL.min(self.n_out - first)].iter().enumerate() {
                    let at = if is_input_major {
                        input_idx * self.n_out + first + nth
                    } else {
                        (first + nth) * self.n_in + input_idx
                    };
                    values[at] = *value;
                }
            }
        }
        values
    }

    /// Size in bytes.
    pub fn held(&self) -> usize {
        self.data.held()
    }
}

/// `to = from · weights`, or `to += from · weights` when `accumulate`. // from: [row, n_in]; to: [row, n_out]
///
/// # Panics
/// When `from` and `to` differ in their number of rows, or have incomplete rows.
pub fn few_rows(weights: &FewRows, from: &[f32], accumulate: bool, to: &mut [f32]) {
    let (n_in, n_out) = (weights.n_in, weights.n_out);
    let n_rows = to.len() / n_out.max(1);
    assert!(
        from.len() == n_rows * n_in && to.len() == n_rows * n_out,
        "{} values are not {n_rows} rows of {n_in}",
        from.len()
    );
    let mut from = from;
    for to in to.chunks_mut((ROWS * n_out).max(1)) {
        let n = to.len() / n_out;
        let (here, rest) = from.split_at(n * n_in);
        match n {
            1 => some_rows::<1>(weights, here, accumulate, to),
            2 => some_rows::<2>(weights, here, accumulate, to),
            3 => some_rows::<3>(weights, here, accumulate, to),
            _ => some_rows::<ROWS>(weights, here, accumulate, to),
        }
        from = rest;
    }
}

fn some_rows<const N: usize>(weights: &FewRows, from: &[f32], accumulate: bool, to: &mut [f32]) {
    let level = Level::current();
    let (n_in, n_out) = (weights.n_in, weights.n_out);
    let rows: [&[f32]; N] = std::array::from_fn(|i| &from[i * n_in..][..n_in]);
    let mut sums = vec![[[0.0f32; PANEL]; N]; n_out.div_ceil(PANEL)];
    if accumulate {
        for (panel_idx, panel) in sums.iter_mut().enumerate() {
            let outputs = panel_idx * PANEL..((panel_idx + 1) * PANEL).min(n_out);
            for (row_idx, sums) in panel.iter_mut().enumerate() {
                let row = &to[row_idx * n_out..][..n_out];
                sums[..outputs.len()].copy_from_slice(&row[outputs.clone()]);
            }
        }
    }
    let n_at_once = (TASK / (n_in * PANEL).max(1)).max(1);
    let tasks = sums
        .par_iter_mut()
        .zip(weights.data.par_chunks((n_in * PANEL).max(1)))
        .with_min_len(n_at_once);
    tasks.for_each(|(sums, panel)| {
        level.run(Panel { panel, rows, sums });
    });
    for (panel_idx, panel) in sums.iter().enumerate() {
        let outputs = panel_idx * PANEL..((panel_idx + 1) * PANEL).min(n_out);
        for (row_idx, sums) in panel.iter().enumerate() {
            let row = &mut to[row_idx * n_out..][..n_out];
            row[outputs.clone()].copy_from_slice(&sums[..outputs.len()]);
        }
    }
}

/// Some rows times one panel.
struct Panel<'a, const N: usize> {
    /// [input, PANEL]
    panel: &'a [f32],
    rows: [&'a [f32]; N],
    sums: &'a mut [[f32; PANEL]; N],
}

impl<const N: usize> Kernel for Panel<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        match L::N {
            16 => self.vectors::<L, 4>(l),
            8 => self.vectors::<L, 8>(l),
            _ => self.vectors::<L, 16>(l),
        }
    }
}

impl<const N: usize> Panel<'_, N> {
    #[inline(always)]
    fn vectors<L: Lanes, const VECTORS: usize>(self, l: L) {
        let mut start = 0;
        while start < self.rows[0].len() {
            let end = (start + TERMS).min(self.rows[0].len());
            let (panel, _) =
                L::vectors(&self.panel[start * PANEL..end * PANEL]).as_chunks::<VECTORS>();
            let mut part = [[l.splat(0.0); VECTORS]; N];
            for (i, vectors) in panel.iter().enumerate() {
                for (row, sums) in self.rows.iter().zip(part.iter_mut()) {
                    let factor = l.splat(row[start + i]);
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = l.mul_add(factor, *vector, *sum);
                    }
                }
            }
            for (sums, part) in self.sums.iter_mut().zip(&part) {
                for (sum, part) in L::vectors_mut(sums).iter_mut().zip(part) {
                    *sum = l.add(*sum, *part);
                }
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Matrix, MatrixMut, Threads, product};

    #[test]
    fn repacked_weights_give_bit_identical_products() {
        let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
        for (n_out, n_in) in [(65, 3), (100, 511), (200, 513), (130, 768), (70, 3072)] {
            let weight: Vec<f32> = (0..n_out * n_in).map(value).collect();
            for is_input_major in [false, true] {
                let laid_out = FewRows::of(&weight, n_out, n_in, is_input_major);
                assert_eq!(laid_out.values(is_input_major), weight);
                let right = if is_input_major {
                    Matrix::row_major(&weight, n_in, n_out)
                } else {
                    Matrix::row_major(&weight, n_out, n_in).transposed()
                };
                for n_rows in [1, 2, 5, 11] {
                    let rows: Vec<f32> = (0..n_rows * n_in).map(|i| value(i + 3)).collect();
                    for accumulate in [false, true] {
                        let mut found =
                            [(); 2].map(|()| (0..n_rows * n_out).map(value).collect::<Vec<f32>>());
                        few_rows(&laid_out, &rows, accumulate, &mut found[0]);
                        let mut to = MatrixMut::new(&mut found[1], n_rows, n_out, n_out);
                        let left = Matrix::row_major(&rows, n_rows, n_in);
                        product(&mut to, left, right, accumulate, Threads::One);
                        assert!(found[0] == found[1], "{n_rows} rows of {n_out} x {n_in}");
                    }
                }
            }
        }
    }
}
