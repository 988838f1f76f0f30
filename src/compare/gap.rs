//! Difference of two sides' values of one hook: sums per head, and each head's worst place.

use std::ops::Range;

use attnscope_compute::kernels::simd::{Level, pair_sums};

/// Sums over the values of one head, or of a hook without heads.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeadGap {
    /// Σ(a − b)² and Σa² of values that are finite on both sides.
    pub squares: f64,
    pub size: f64,
    /// Σab and Σb² of the same values.
    product: f64,
    size_b: f64,
    pub n_values: usize,
    /// Number of cells visible on one side only.
    pub n_one_sided: usize,
    /// The first value that is NaN or infinite on one side only: query, key, and whether it is A's.
    pub broken: Option<(usize, usize, bool)>,
    /// The largest |a − b|, and its place.
    pub worst: f64,
    pub at: (usize, usize),
}

/// ‖b − c·a‖² up to this share of ‖b‖² counts as rounding.
const SCALED: f64 = 1e-6;

/// Returns the range of cells visible on some side.
fn seen(a: &[f32], b: &[f32]) -> Range<usize> {
    let is_seen = |(a, b): (&f32, &f32)| *a != f32::NEG_INFINITY || *b != f32::NEG_INFINITY;
    let mut pairs = a.iter().zip(b);
    let Some(first) = pairs.position(is_seen) else {
        return 0..0;
    };
    let last = a.iter().zip(b).rposition(is_seen);
    first..last.unwrap_or(first) + 1
}

/// Minimum difference of scores counted for a cell visible on one side only: one unit of a logit.
const ONE_SIDED: f64 = 1.0;

impl HeadGap {
    /// Adds a pair of values of which one is not finite. In scores, −∞ marks a masked key.
    fn pair(&mut self, a: f32, b: f32, at: (usize, usize), masks: bool) {
        let is_masked = |v: f32| masks && v == f32::NEG_INFINITY;
        let difference = match (is_masked(a), is_masked(b)) {
            (true, true) => return,
            (false, false) => {
                let is_same = a == b || (a.is_nan() && b.is_nan());
                let is_of_a = !a.is_finite();
                if !is_same && self.broken.is_none_or(|(q, k, _)| at < (q, k)) {
                    self.broken = Some((at.0, at.1, is_of_a));
                }
                return;
            }
            (one_sided, _) => {
                self.n_one_sided += 1;
                let seen = f64::from(if one_sided { b } else { a });
                if !one_sided && seen.is_finite() {
                    self.size += seen * seen;
                }
                if seen.is_finite() {
                    seen.abs().max(ONE_SIDED)
                } else {
                    ONE_SIDED
                }
            }
        };
        self.n_values += 1;
        if difference > 0.0 {
            self.squares += difference * difference;
            if difference > self.worst || (difference == self.worst && at < self.at) {
                (self.worst, self.at) = (difference, at);
            }
        }
    }

    /// Adds one query's row of values, from key 0 on.
    pub fn row(&mut self, query_idx: usize, a: &[f32], b: &[f32], masks: bool) {
        if same_bits(a, b) {
            self.equal(a);
            return;
        }
        self.pairs(a, b, &|idx| (query_idx, idx), masks);
    }

    /// Adds values of which some differ.
    fn pairs(&mut self, a: &[f32], b: &[f32], at: &dyn Fn(usize) -> (usize, usize), masks: bool) {
        // Keys masked on both sides come before a window and after the query.
        let seen = if masks { seen(a, b) } else { 0..a.len() };
        let first = seen.start;
        let (a, b) = (&a[seen.clone()], &b[seen]);
        let sums = pair_sums(Level::current(), a, b);
        if !sums.are_whole() {
            self.one_by_one(a, b, &|idx| at(first + idx), masks);
            return;
        }
        self.n_values += a.len();
        self.squares += sums.squares;
        self.size += sums.size;
        self.product += sums.product;
        self.size_b += sums.size_b;
        let worst = f64::from(sums.max_abs);
        if worst > self.worst {
            let mut pairs = a.iter().zip(b);
            let idx = pairs.position(|(a, b)| (a - b).abs() == sums.max_abs);
            (self.worst, self.at) = (worst, at(first + idx.unwrap_or(0)));
        }
    }

    /// Adds values one by one: some are not finite, or too small or large to be squared in f32.
    fn one_by_one(
        &mut self,
        a: &[f32],
        b: &[f32],
        at: &dyn Fn(usize) -> (usize, usize),
        masks: bool,
    ) {
        let (mut squares, mut size, mut product, mut size_b) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        let mut n_values = 0;
        for (idx, (a, b)) in a.iter().zip(b).enumerate() {
            if a == b {
                // Mostly keys masked on both sides.
                if a.is_finite() {
                    let square = f64::from(*a) * f64::from(*a);
                    n_values += 1;
                    size += square;
                    product += square;
                    size_b += square;
                }
                continue;
            }
            if !(a.is_finite() && b.is_finite()) {
                self.pair(*a, *b, at(idx), masks);
                continue;
            }
            let (a, b) = (f64::from(*a), f64::from(*b));
            n_values += 1;
            size += a * a;
            product += a * b;
            size_b += b * b;
            let difference = (a - b).abs();
            squares += difference * difference;
            if difference > self.worst {
                (self.worst, self.at) = (difference, at(idx));
            }
        }
        self.n_values += n_values;
        self.squares += squares;
        self.size += size;
        self.product += product;
        self.size_b += size_b;
    }

    /// Adds a vector at one position.
    pub fn vector(&mut self, position_idx: usize, a: &[f32], b: &[f32]) {
        if same_bits(a, b) {
            self.equal(a);
            return;
        }
        self.pairs(a, b, &|_| (position_idx, 0), false);
    }

    /// Adds values that are equal on both sides.
    fn equal(&mut self, values: &[f32]) {
        let values = &values[seen(values, values)];
        let sums = pair_sums(Level::current(), values, values);
        let (mut n, mut size) = (values.len(), sums.size);
        if !sums.are_whole() {
            (n, size) = (0, 0.0);
            for v in values.iter().filter(|v| v.is_finite()) {
                n += 1;
                size += f64::from(*v) * f64::from(*v);
            }
        }
        self.n_values += n;
        self.size += size;
        self.product += size;
        self.size_b += size;
    }

    /// Adds another part of the same head.
    pub fn join(&mut self, other: &Self) {
        self.squares += other.squares;
        self.size += other.size;
        self.product += other.product;
        self.size_b += other.size_b;
        self.n_values += other.n_values;
        self.n_one_sided += other.n_one_sided;
        if let Some(broken) = other.broken
            && self
                .broken
                .is_none_or(|own| (broken.0, broken.1) < (own.0, own.1))
        {
            self.broken = Some(broken);
        }
        if other.worst > self.worst {
            (self.worst, self.at) = (other.worst, other.at);
        }
    }

    /// Returns ‖a − b‖/‖a‖; infinite if only one side is not finite, or only one is nonzero.
    pub fn relative(&self) -> f64 {
        if self.broken.is_some() {
            return f64::INFINITY;
        }
        if self.squares == 0.0 {
            return 0.0;
        }
        (self.squares / self.size).sqrt()
    }

    /// Returns c such that B = c · A for all values, if there is one.
    pub fn factor(&self) -> Option<f64> {
        let factor = self.product / self.size;
        // ‖b − c·a‖², without another pass.
        let left = self.size_b - factor * self.product;
        let is_it = self.squares > 0.0 && self.n_one_sided == 0 && self.broken.is_none();
        (is_it && factor.is_finite() && left.abs() <= SCALED * self.size_b).then_some(factor)
    }

    /// Sort key of the worst head: one-sided non-finite values first, then the largest difference.
    fn badness(&self) -> (bool, f64) {
        (self.broken.is_some(), self.squares)
    }
}

/// Whether two slices hold the same bits.
pub(super) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    let (a, b): (&[u32], &[u32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
    a == b
}

/// Axes of a hook's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axes {
    /// One row of keys per query.
    Cells,
    /// One vector per query position.
    Queries,
    /// One vector per key position.
    Keys,
}

/// Difference at one hook of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HookGap {
    pub axes: Axes,
    /// Whether values belong to heads; otherwise `heads` has a single entry.
    pub has_heads: bool,
    pub heads: Vec<HeadGap>,
}

impl HookGap {
    /// Compares vectors of all real positions. // [position, heads · width] each
    pub fn of_vectors(
        axes: Axes,
        n_heads: Option<usize>,
        (a, b): (&[f32], &[f32]),
        width: usize,
        is_real: &dyn Fn(usize) -> bool,
    ) -> Self {
        let n = n_heads.filter(|n| *n > 0 && width.is_multiple_of(*n));
        let of_head = (width / n.unwrap_or(1)).max(1);
        let mut heads = vec![HeadGap::default(); n.unwrap_or(1)];
        let rows = a.chunks(width.max(1)).zip(b.chunks(width.max(1)));
        for (position_idx, (a, b)) in rows.enumerate().filter(|(idx, _)| is_real(*idx)) {
            let parts = a.chunks(of_head).zip(b.chunks(of_head));
            for (head, (a, b)) in heads.iter_mut().zip(parts) {
                head.vector(position_idx, a, b);
            }
        }
        Self {
            axes,
            has_heads: n.is_some(),
            heads,
        }
    }

    /// Returns the sums over all heads.
    pub fn total(&self) -> HeadGap {
        let mut total = HeadGap::default();
        self.heads.iter().for_each(|head| total.join(head));
        total
    }

    /// Returns the head that differs most.
    pub fn worst_head(&self) -> Option<usize> {
        let heads = self.heads.iter().enumerate();
        let differing = heads.filter(|(_, head)| head.squares > 0.0 || head.broken.is_some());
        let worst = differing.max_by(|(i, a), (j, b)| {
            let (broken_a, a) = a.badness();
            let (broken_b, b) = b.badness();
            // Among equal heads, the first.
            broken_a.cmp(&broken_b).then(a.total_cmp(&b)).then(j.cmp(i))
        });
        worst.map(|(idx, _)| idx)
    }

    /// Adds the same hook of another prompt.
    pub fn join(&mut self, other: &Self) {
        for (own, other) in self.heads.iter_mut().zip(&other.heads) {
            own.join(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_on_one_side_is_located_and_nans_on_both_are_equal() {
        let nan = f32::NAN;
        let mut gap = HeadGap::default();
        gap.row(2, &[1.0, nan, 3.0], &[1.0, nan, 4.0], false);
        assert_eq!((gap.broken, gap.worst, gap.at), (None, 1.0, (2, 2)));
        gap.row(1, &[1.0, 2.0, 3.0], &[1.0, nan, 3.0], false);
        assert_eq!(gap.broken, Some((1, 1, false)));
        assert_eq!(gap.relative(), f64::INFINITY);
        assert!(gap.squares.is_finite());
    }

    #[test]
    fn a_key_visible_on_one_side_differs_even_with_a_small_score() {
        let masked = f32::NEG_INFINITY;
        let mut gap = HeadGap::default();
        gap.row(0, &[1.0, masked, 0.0], &[1.0, masked, masked], true);
        assert_eq!((gap.n_one_sided, gap.at), (1, (0, 2)));
        assert!(gap.relative() >= 1.0);
    }

    #[test]
    fn the_head_with_the_largest_difference_is_the_worst() {
        let a = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let b = [1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.1];
        let gap = HookGap::of_vectors(Axes::Queries, Some(2), (&a, &b), 4, &|_| true);
        assert_eq!(gap.worst_head(), Some(1));
        assert_eq!(gap.heads[1].at, (0, 0));
        let none = HookGap::of_vectors(Axes::Queries, None, (&a, &a), 4, &|_| true);
        assert_eq!((none.worst_head(), none.total().relative()), (None, 0.0));
        let padded = HookGap::of_vectors(Axes::Queries, None, (&a, &b), 4, &|idx| idx == 1);
        assert!(padded.total().worst < 0.2);
    }
}
