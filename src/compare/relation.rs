//! Recognizes how a changed matrix relates to the original: the changes that ports and conversions make.

use std::fmt;

use attnscope_compute::kernels::simd::{Level, pair_sums};

use super::roles::{Division, Heads, transposed};
use super::rounding::Roundings;

/// A relation between unequal tensors of two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// One is the other rounded to bf16 or f16.
    Rounded,
    /// One is the other times a constant.
    Scaled,
    /// One is the other transposed, or reinterpreted with the transposed shape.
    Transposed,
    /// The same heads in another order.
    HeadsPermuted,
    /// Rotary dimensions of queries and keys are paired as halves in one, and interleaved in the other.
    RotaryInterleaved,
    /// The gate of one is the up-projection of the other.
    GateUpSwapped,
}

impl Relation {
    /// Returns the name used in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rounded => "rounded",
            Self::Scaled => "scaled",
            Self::Transposed => "transposed",
            Self::HeadsPermuted => "heads-permuted",
            Self::RotaryInterleaved => "rotary-interleaved",
            Self::GateUpSwapped => "gate-up-swapped",
        }
    }

    /// All relations, in the order of the search.
    pub const ALL: [Self; 6] = [
        Self::Rounded,
        Self::Scaled,
        Self::Transposed,
        Self::HeadsPermuted,
        Self::RotaryInterleaved,
        Self::GateUpSwapped,
    ];
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A matrix, or a vector of one input. // [n_out, n_in]
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub values: &'a [f32],
    pub n_out: usize,
    pub n_in: usize,
}

impl Part<'_> {
    fn transposed(&self) -> Vec<f32> {
        transposed(self.values, self.n_out, self.n_in)
    }
}

/// Number of leading values that rule out most pairs.
const SAMPLE: usize = 256;
/// Samples smaller than this may differ more than the whole.
const FEW: usize = 16;

/// Whether two lists of numbers are equal within a share of their size.
pub(super) fn alike(a: &[f32], b: &[f32], floor: f64) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // A bound on the whole also bounds its first part, so a few values rule out most pairs.
    let first = a.len().min(SAMPLE);
    if first < a.len() && distance(&a[..first], &b[..first]) > 16.0 * floor {
        return false;
    }
    distance(a, b) <= floor
}

/// Returns ‖a − b‖/‖a‖; 0 between zeros, infinite if a value is not finite or only one side is 0.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let sums = pair_sums(Level::current(), a, b);
    if sums.are_whole() {
        return (sums.squares / sums.size).sqrt();
    }
    let (mut difference, mut size) = (0.0f64, 0.0f64);
    for (a, b) in a.iter().zip(b) {
        if a.to_bits() == b.to_bits() {
            size += f64::from(*a) * f64::from(*a);
            continue;
        }
        let d = f64::from(*a) - f64::from(*b);
        difference += d * d;
        size += f64::from(*a) * f64::from(*a);
    }
    if difference == 0.0 {
        return 0.0;
    }
    let share = (difference / size).sqrt();
    if share.is_nan() { f64::INFINITY } else { share }
}

/// Whether every value of one side is the other's, rounded to 16 bits.
pub(super) fn is_rounded(a: &[f32], b: &[f32]) -> bool {
    Roundings::ALL.after(a, b).are_possible()
}

/// Returns c such that one side is c times the other, if there is one.
pub(super) fn factor(a: &[f32], b: &[f32], floor: f64) -> Option<f64> {
    let ratio = |a: &[f32], b: &[f32]| {
        let (mut product, mut square) = (0.0f64, 0.0f64);
        for (a, b) in a.iter().zip(b) {
            product += f64::from(*a) * f64::from(*b);
            square += f64::from(*a) * f64::from(*a);
        }
        product / square
    };
    let scales = |a: &[f32], b: &[f32], factor: f64, floor: f64| {
        let scaled: Vec<f32> = a.iter().map(|a| (f64::from(*a) * factor) as f32).collect();
        alike(b, &scaled, floor)
    };
    let floor = floor.max(1e-6);
    // A factor of all values is a factor of the first ones, and those rule out most pairs.
    let n = a.len().min(b.len()).min(SAMPLE);
    let of_first = ratio(&a[..n], &b[..n]);
    if of_first.is_finite() && !scales(&a[..n], &b[..n], of_first, 16.0 * floor) {
        return None;
    }
    let factor = ratio(a, b);
    if !factor.is_finite() || factor == 0.0 || (factor - 1.0).abs() <= 4.0 * floor {
        return None;
    }
    scales(a, b, factor, floor).then_some(factor)
}

/// Returns the relation of one part to its counterpart, and the factor if it is scaled; `None` if no known relation holds.
///
/// `floor` is the relative difference that storage leaves between equal values.
pub(super) fn relation(
    a: Part<'_>,
    b: Part<'_>,
    division: Division,
    floor: f64,
) -> Option<(Relation, Option<f64>)> {
    if is_rounded(a.values, b.values) {
        return Some((Relation::Rounded, None));
    }
    if let Some(factor) = factor(a.values, b.values, floor) {
        return Some((Relation::Scaled, Some(factor)));
    }
    if is_transposed(a, b, floor) {
        return Some((Relation::Transposed, None));
    }
    let by_heads = match division {
        Division::None => None,
        Division::Inputs(heads) => {
            let (turned_a, turned_b) = (a.transposed(), b.transposed());
            of_heads((&turned_a, &turned_b), a.n_out, heads, false, floor)
        }
        Division::Outputs(heads) => of_heads((a.values, b.values), a.n_in, heads, false, floor),
        Division::Rotating(heads) => of_heads((a.values, b.values), a.n_in, heads, true, floor),
    };
    by_heads.map(|relation| (relation, None))
}

/// Whether a matrix is the other one transposed, or the transposed data under the original shape.
fn is_transposed(a: Part<'_>, b: Part<'_>, floor: f64) -> bool {
    let is_matrix = a.n_out > 1 && a.n_in > 1;
    let begins = |from: Part<'_>, as_it_is: &[f32]| {
        let column = (0..from.n_out.min(SAMPLE)).map(|row| from.values[row * from.n_in]);
        transposed_begins(&column.collect::<Vec<f32>>(), as_it_is, floor)
    };
    is_matrix
        && ((begins(a, b.values) && alike(&a.transposed(), b.values, floor))
            || (begins(b, a.values) && alike(a.values, &b.transposed(), floor)))
}

/// Whether the first column of one matrix may equal the beginning of the other.
pub(super) fn transposed_begins(column: &[f32], as_it_is: &[f32], floor: f64) -> bool {
    let n = column.len().min(as_it_is.len()).min(SAMPLE);
    distance(&column[..n], &as_it_is[..n]) <= 16.0 * floor
}

/// Returns whether heads are permuted, or the dimensions within each. // [head · width, n_in] each
pub(super) fn of_heads(
    (a, b): (&[f32], &[f32]),
    n_in: usize,
    heads: Heads,
    rotates: bool,
    floor: f64,
) -> Option<Relation> {
    let of_head = heads.width * n_in;
    if of_head == 0 || a.len() != heads.n * of_head || b.len() != a.len() {
        return None;
    }
    if is_permutation(a, b, of_head, floor) {
        return Some(Relation::HeadsPermuted);
    }
    if !rotates {
        return None;
    }
    let spans = [
        heads.rotary,
        (0, heads.width),
        (0, heads.rotary.1),
        (
            heads.width - heads.rotary.1.min(heads.width),
            heads.rotary.1,
        ),
    ];
    let is_span =
        |(first, n): &(usize, usize)| *n >= 4 && n.is_multiple_of(2) && first + n <= heads.width;
    for span in spans.into_iter().filter(is_span) {
        for to_halves in [true, false] {
            // One row of the first head rules out most pairs, whatever the order of heads.
            let from = source(1, span, to_halves) * n_in;
            let row = &a[from..from + n_in];
            let mut rows = b.chunks(of_head).map(|head| &head[n_in..2 * n_in]);
            if n_in >= FEW && !rows.any(|other| distance(row, other) <= 16.0 * floor) {
                continue;
            }
            let paired = repaired(a, n_in, heads.width, span, to_halves);
            let is_it = alike(&paired, b, floor) || is_permutation(&paired, b, of_head, floor);
            if is_it {
                return Some(Relation::RotaryInterleaved);
            }
        }
    }
    None
}

/// Whether the heads of `b` are a permutation of those of `a`; heads that stayed in place keep their match.
fn is_permutation(a: &[f32], b: &[f32], of_head: usize, floor: f64) -> bool {
    let (a, b): (Vec<&[f32]>, Vec<&[f32]>) =
        (a.chunks(of_head).collect(), b.chunks(of_head).collect());
    let stays: Vec<bool> = a.iter().zip(&b).map(|(a, b)| alike(a, b, floor)).collect();
    let mut is_free: Vec<bool> = stays.iter().map(|stays| !stays).collect();
    for (b, _) in b.iter().zip(&stays).filter(|(_, stays)| !**stays) {
        let found = (0..a.len()).find(|idx| is_free[*idx] && alike(a[*idx], b, floor));
        let Some(found) = found else {
            return false;
        };
        is_free[found] = false;
    }
    stays.contains(&false)
}

/// Returns the source of row `row` of a head when the pairing of dimensions changes.
fn source(row: usize, (first, n): (usize, usize), to_halves: bool) -> usize {
    match row.checked_sub(first).filter(|row| *row < n) {
        None => row,
        Some(row) if to_halves && row < n / 2 => first + 2 * row,
        Some(row) if to_halves => first + 2 * (row - n / 2) + 1,
        Some(row) => first + row / 2 + (row % 2) * (n / 2),
    }
}

/// Changes the pairing of every head's rows: interleaved to halves, or halves to interleaved. // [head · width, n_in]
fn repaired(
    values: &[f32],
    n_in: usize,
    width: usize,
    span: (usize, usize),
    to_halves: bool,
) -> Vec<f32> {
    let mut to = Vec::with_capacity(values.len());
    for head in values.chunks(width * n_in) {
        for row in 0..width {
            let from = source(row, span, to_halves) * n_in;
            to.extend_from_slice(&head[from..from + n_in]);
        }
    }
    to
}

/// Whether a tensor is another one transposed.
pub(super) fn is_turned(a: (&[usize], &[f32]), b: (&[usize], &[f32])) -> bool {
    let ([rows, columns], [rows_b, columns_b]) = (a.0, b.0) else {
        return false;
    };
    (rows, columns) == (columns_b, rows_b) && {
        let turned = transposed(a.1, *rows, *columns);
        alike(&turned, b.1, 1e-6) || is_rounded(&turned, b.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 7919 + 13) % 101) as f32 / 37.0 - 1.2)
            .collect()
    }

    const HEADS: Heads = Heads {
        n: 3,
        width: 8,
        rotary: (0, 8),
    };

    fn found(a: &[f32], b: &[f32], division: Division) -> Option<Relation> {
        let part = |values| Part {
            values,
            n_out: 24,
            n_in: a.len() / 24,
        };
        relation(part(a), part(b), division, 1e-6).map(|(relation, _)| relation)
    }

    #[test]
    fn every_known_relation_is_recognized_and_no_other() {
        let a = values(24 * 24);
        let mut heads = a.clone();
        heads.rotate_left(8 * 24);
        let halves = repaired(&a, 24, 8, (0, 8), true);
        let partly = repaired(&a, 24, 8, (0, 4), false);
        let scaled: Vec<f32> = a.iter().map(|v| v * -0.25).collect();
        let rounded: Vec<f32> = a
            .iter()
            .map(|v| half::bf16::from_f32(*v).to_f32())
            .collect();
        let turned = transposed(&a, 24, 24);
        let mut other = a.clone();
        other[5] += 0.5;
        let rotating = Division::Rotating(HEADS);
        let quarter = Division::Rotating(Heads {
            rotary: (0, 4),
            ..HEADS
        });
        assert_eq!(found(&a, &heads, rotating), Some(Relation::HeadsPermuted));
        assert_eq!(found(&a, &heads, Division::None), None);
        assert_eq!(
            found(&a, &halves, rotating),
            Some(Relation::RotaryInterleaved)
        );
        assert_eq!(
            found(&halves, &a, rotating),
            Some(Relation::RotaryInterleaved)
        );
        assert_eq!(found(&a, &halves, Division::Outputs(HEADS)), None);
        assert_eq!(
            found(&a, &partly, quarter),
            Some(Relation::RotaryInterleaved)
        );
        assert_eq!(found(&a, &scaled, rotating), Some(Relation::Scaled));
        assert_eq!(found(&a, &rounded, rotating), Some(Relation::Rounded));
        assert_eq!(found(&a, &turned, rotating), Some(Relation::Transposed));
        assert_eq!(found(&a, &other, rotating), None);
        let columns = transposed(&heads, 24, 24);
        let inputs = Division::Inputs(HEADS);
        assert_eq!(
            found(&turned, &columns, inputs),
            Some(Relation::HeadsPermuted)
        );
    }

    #[test]
    fn equal_heads_do_not_hide_a_swap_of_other_heads() {
        let mut a = values(24 * 3);
        let (first, rest) = a.split_at_mut(24);
        rest[..24].copy_from_slice(first);
        let mut b = a.clone();
        b[..24].copy_from_slice(&a[48..]);
        b[48..].copy_from_slice(&a[..24]);
        let found = found(&a, &b, Division::Outputs(HEADS));
        assert_eq!(found, Some(Relation::HeadsPermuted));
    }
}
