//! Sums over pairs of values, for differences between two slices.

use super::lanes::Lanes;
use super::level::{Kernel, Level};

/// Number of vectors summed in f32 before the sums are added in f64.
const FLUSH: usize = 16;
/// Smaller sums may have lost squares that f32 cannot represent.
const LEAST: f64 = 1e-24;

/// Sums over the pairs of two slices of equal length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairSums {
    /// Σ(a − b)².
    pub squares: f64,
    /// Σa².
    pub size: f64,
    /// Σab.
    pub product: f64,
    /// Σb².
    pub size_b: f64,
    /// The largest |a − b|.
    pub max_abs: f32,
}

impl PairSums {
    /// Whether the sums are reliable: all values are finite, and no square left the range of f32.
    pub fn are_whole(&self) -> bool {
        let is_whole = |sum: f64| sum.is_finite() && sum > LEAST;
        is_whole(self.size)
            && is_whole(self.size_b)
            && self.product.is_finite()
            && (is_whole(self.squares) || self.max_abs == 0.0)
    }
}

/// Sums over two slices of equal length.
///
/// # Panics
/// When the lengths differ.
pub fn pair_sums(level: Level, a: &[f32], b: &[f32]) -> PairSums {
    assert_eq!(a.len(), b.len(), "slices of one length");
    level.run(PairsOf(a, b))
}

struct PairsOf<'a>(&'a [f32], &'a [f32]);

impl Kernel for PairsOf<'_> {
    type Output = PairSums;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> PairSums {
        let (of_a, of_b) = (L::vectors(self.0), L::vectors(self.1));
        let n = of_a.len() * L::N;
        let mut sums = PairSums {
            squares: 0.0,
            size: 0.0,
            product: 0.0,
            size_b: 0.0,
            max_abs: 0.0,
        };
        let zero = l.splat(0.0);
        let mut most = zero;
        for (of_a, of_b) in of_a.chunks(FLUSH).zip(of_b.chunks(FLUSH)) {
            let (mut squares, mut size, mut product, mut size_b) = (zero, zero, zero, zero);
            for (a, b) in of_a.iter().zip(of_b) {
                let apart = l.sub(*a, *b);
                squares = l.mul_add(apart, apart, squares);
                size = l.mul_add(*a, *a, size);
                product = l.mul_add(*a, *b, product);
                size_b = l.mul_add(*b, *b, size_b);
                most = l.max(l.abs(apart), most);
            }
            sums.squares += f64::from(l.sum(squares));
            sums.size += f64::from(l.sum(size));
            sums.product += f64::from(l.sum(product));
            sums.size_b += f64::from(l.sum(size_b));
        }
        sums.max_abs = L::values(&most).iter().copied().fold(0.0, f32::max);
        for (a, b) in self.0[n..].iter().zip(&self.1[n..]) {
            let (wide_a, wide_b) = (f64::from(*a), f64::from(*b));
            let apart = f64::from(a - b);
            sums.squares += apart * apart;
            sums.size += wide_a * wide_a;
            sums.product += wide_a * wide_b;
            sums.size_b += wide_b * wide_b;
            sums.max_abs = sums.max_abs.max((a - b).abs());
        }
        sums
    }
}

/// Adds the columns of two blocks of rows: adds Σ(a − b)² and Σa² to each column's sums, and updates its largest |a − b|.
///
/// Values that are not finite make the sum non-finite.
/// // a, b: [row, width]; each of `to`: [column]
///
/// # Panics
/// When the lengths do not match.
pub fn add_pair_columns(level: Level, a: &[f32], b: &[f32], to: [&mut [f32]; 3]) {
    assert_eq!(a.len(), b.len(), "blocks of one size");
    let width = to[0].len();
    assert!(
        to.iter().all(|to| to.len() == width),
        "columns of one width"
    );
    level.run(PairColumns { a, b, to });
}

struct PairColumns<'a> {
    a: &'a [f32],
    b: &'a [f32],
    to: [&'a mut [f32]; 3],
}

impl Kernel for PairColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let [squares, sizes, most] = self.to;
        let width = squares.len().max(1);
        let n = width / L::N * L::N;
        for (of_a, of_b) in self.a.chunks_exact(width).zip(self.b.chunks_exact(width)) {
            let (whole_a, whole_b) = (L::vectors(of_a), L::vectors(of_b));
            let to = L::vectors_mut(squares).iter_mut();
            let to = to.zip(L::vectors_mut(sizes)).zip(L::vectors_mut(most));
            for ((a, b), ((squares, size), most)) in whole_a.iter().zip(whole_b).zip(to) {
                let apart = l.sub(*a, *b);
                *squares = l.mul_add(apart, apart, *squares);
                *size = l.mul_add(*a, *a, *size);
                *most = l.max(l.abs(apart), *most);
            }
            for column in n..width {
                let (a, b) = (of_a[column], of_b[column]);
                squares[column] += (a - b) * (a - b);
                sizes[column] += a * a;
                most[column] = most[column].max((a - b).abs());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_sums_like_f64() {
        for n in [0, 1, 5, 16, 700] {
            let a: Vec<f32> = (0..n)
                .map(|i| ((i * 7919) % 101) as f32 / 7.0 - 6.0)
                .collect();
            let b: Vec<f32> = (0..n)
                .map(|i| ((i * 104_729) % 97) as f32 / 9.0 - 5.0)
                .collect();
            let pairs = || {
                a.iter()
                    .zip(&b)
                    .map(|(a, b)| (f64::from(*a), f64::from(*b)))
            };
            let expected = [
                pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>(),
                pairs().map(|(a, _)| a * a).sum(),
                pairs().map(|(a, b)| a * b).sum(),
                pairs().map(|(_, b)| b * b).sum(),
                pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max),
            ];
            for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                let found = pair_sums(level, &a, &b);
                let most = f64::from(found.max_abs);
                let found = [found.squares, found.size, found.product, found.size_b, most];
                for (found, expected) in found.iter().zip(&expected) {
                    let scale = expected.abs().max(n as f64);
                    assert!((found - expected).abs() <= 1e-5 * scale, "{level:?} {n}");
                }
            }
        }
    }

    #[test]
    fn inexact_sums_are_marked() {
        for odd in [f32::NAN, f32::INFINITY, 3e19] {
            for at in [0, 40] {
                let mut a = vec![1.0; 41];
                let b = a.clone();
                a[at] = odd;
                for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                    let found = pair_sums(level, &a, &b);
                    // The last value is summed in f64, which loses no finite value.
                    let fits = odd.is_finite() && at == 40;
                    assert_eq!(found.are_whole(), fits, "{level:?} {odd} {at}");
                }
            }
        }
        let tiny = pair_sums(Level::Portable, &[1e-30; 32], &[2e-30; 32]);
        assert!(!tiny.are_whole());
        assert!(pair_sums(Level::Portable, &[1.0; 32], &[1.0; 32]).are_whole());
    }

    #[test]
    fn columns_are_summed_like_rows() {
        for width in [1, 5, 16, 37, 64] {
            let n = 9 * width;
            let a: Vec<f32> = (0..n).map(|i| ((i * 7919) % 101) as f32 - 50.0).collect();
            let mut b = a.clone();
            b[3 * width + width / 2] += 2.0;
            for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                let (mut squares, mut sizes) = (vec![0.0; width], vec![0.0; width]);
                let mut most = vec![0.0; width];
                let to = [&mut squares[..], &mut sizes[..], &mut most[..]];
                add_pair_columns(level, &a, &b, to);
                for column in 0..width {
                    let of_column = a.iter().skip(column).step_by(width);
                    let size: f32 = of_column.map(|v| v * v).sum();
                    assert!((sizes[column] - size).abs() <= 1e-5 * size, "{width}");
                    let apart = if column == width / 2 { 2.0 } else { 0.0 };
                    assert_eq!((squares[column], most[column]), (apart * apart, apart));
                }
            }
        }
        let (mut squares, mut sizes, mut most) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        let to = [&mut squares[..], &mut sizes[..], &mut most[..]];
        add_pair_columns(Level::best(), &[1.0, 2.0], &[1.0, f32::NAN], to);
        assert!(squares[0] == 0.0 && squares[1].is_nan());
    }
}
