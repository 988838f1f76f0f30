//! Whether the boxes that a tensor is divided into cover it, each element once.

use std::collections::{BTreeMap, BTreeSet};

/// Limit on the boxes of a tensor.
const MOST: usize = 1 << 16;

/// A box of a tensor: its first element and its size, along each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub offsets: Vec<usize>,
    pub sizes: Vec<usize>,
}

impl Chunk {
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Number of elements; the box was checked to be inside a shape that can be counted.
    fn n_elements(&self) -> usize {
        self.sizes.iter().product()
    }

    fn end(&self, axis: usize) -> usize {
        self.offsets[axis] + self.sizes[axis]
    }

    fn overlaps(&self, other: &Self) -> bool {
        (0..self.sizes.len()).all(|axis| {
            self.offsets[axis] < other.end(axis) && other.offsets[axis] < self.end(axis)
        })
    }
}

/// Checks that boxes cover a shape exactly.
///
/// # Errors
/// Says which box reaches beyond the shape, which two overlap, or what is missing.
pub fn check(shape: &[usize], chunks: &[Chunk]) -> Result<(), String> {
    if chunks.len() > MOST {
        return Err(format!(
            "is in {} parts, expected at most {MOST}",
            chunks.len()
        ));
    }
    let counted = |shape: &[usize]| {
        let axes = shape.iter();
        axes.copied()
            .map(|n| n.max(1))
            .try_fold(1usize, usize::checked_mul)
    };
    if counted(shape).is_none() {
        return Err(format!("shape {shape:?} is too large"));
    }
    for Chunk { offsets, sizes } in chunks {
        let is_inside = offsets.len() == shape.len()
            && sizes.len() == shape.len()
            && offsets
                .iter()
                .zip(sizes)
                .zip(shape)
                .all(|((first, n), whole)| first.checked_add(*n).is_some_and(|end| end <= *whole));
        if !is_inside {
            return Err(format!(
                "its part of shape {sizes:?} at {offsets:?} is not inside shape {shape:?}"
            ));
        }
    }
    let filled: Vec<&Chunk> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    if let Some((a, b)) = overlapping(&filled, shape.len()) {
        return Err(format!(
            "its parts overlap: {:?} at {:?} and {:?} at {:?}",
            a.sizes, a.offsets, b.sizes, b.offsets
        ));
    }
    let n_whole: usize = shape.iter().product();
    let n_covered: usize = filled.iter().map(|chunk| chunk.n_elements()).sum();
    if n_covered == n_whole {
        return Ok(());
    }
    let what = missing_rows(shape, &filled);
    Err(format!(
        "its parts hold {n_covered} of the {n_whole} elements of shape {shape:?}: {what}"
    ))
}

/// Finds two boxes that overlap.
fn overlapping<'c>(chunks: &[&'c Chunk], n_axes: usize) -> Option<(&'c Chunk, &'c Chunk)> {
    if n_axes == 0 {
        return chunks.first().copied().zip(chunks.get(1).copied());
    }
    // Along the axis with most divisions, few boxes are next to each other.
    let n_divisions = |axis: &usize| {
        let starts = chunks.iter().map(|chunk| chunk.offsets[*axis]);
        starts.collect::<BTreeSet<_>>().len()
    };
    let axis = (0..n_axes).max_by_key(n_divisions)?;
    let mut sorted = chunks.to_vec();
    sorted.sort_by_key(|chunk| chunk.offsets[axis]);
    let mut open: Vec<&Chunk> = Vec::new();
    for chunk in sorted {
        open.retain(|before| before.end(axis) > chunk.offsets[axis]);
        if let Some(other) = open.iter().find(|other| other.overlaps(chunk)) {
            return Some((other, chunk));
        }
        open.push(chunk);
    }
    None
}

/// Says which rows are missing, or there in part.
fn missing_rows(shape: &[usize], chunks: &[&Chunk]) -> String {
    let Some(n_rows) = shape.first() else {
        return "there is none".to_owned();
    };
    let width: usize = shape[1..].iter().product();
    // How many elements of a row begin or end to be covered at each row.
    let mut changes: BTreeMap<usize, (usize, usize)> =
        BTreeMap::from([(0, (0, 0)), (*n_rows, (0, 0))]);
    for chunk in chunks {
        let n: usize = chunk.sizes[1..].iter().product();
        changes.entry(chunk.offsets[0]).or_default().0 += n;
        changes.entry(chunk.end(0)).or_default().1 += n;
    }
    let mut covered = 0;
    let mut rows: Option<(usize, usize)> = None;
    for (row, (begin, end)) in changes {
        if let Some((first, _)) = rows {
            let how = if covered == 0 {
                "missing"
            } else {
                "there in part"
            };
            return format!("rows {first} to {} are {how}", row.saturating_sub(1));
        }
        covered = covered + begin - end;
        if covered < width && row < *n_rows {
            rows = Some((row, covered));
        }
    }
    "some are missing".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(shape: &[usize], chunks: &[(&[usize], &[usize])]) -> String {
        let chunk = |(offsets, sizes): &(&[usize], &[usize])| Chunk {
            offsets: offsets.to_vec(),
            sizes: sizes.to_vec(),
        };
        let chunks: Vec<Chunk> = chunks.iter().map(chunk).collect();
        check(shape, &chunks).err().unwrap_or_default()
    }

    #[test]
    fn rows_columns_grids_and_scalars_are_covered() {
        assert_eq!(said(&[], &[(&[], &[])]), "");
        assert_eq!(said(&[5, 2], &[(&[3, 0], &[2, 2]), (&[0, 0], &[3, 2])]), "");
        assert_eq!(said(&[2, 5], &[(&[0, 3], &[2, 2]), (&[0, 0], &[2, 3])]), "");
        let grid: [(&[usize], &[usize]); 5] = [
            (&[0, 0], &[1, 3]),
            (&[1, 0], &[2, 1]),
            (&[1, 1], &[2, 2]),
            (&[0, 3], &[3, 1]),
            (&[3, 0], &[0, 4]),
        ];
        assert_eq!(said(&[3, 4], &grid), "");
        assert_eq!(said(&[0, 4], &[]), "");
    }

    #[test]
    fn what_is_missing_is_named() {
        let gap = said(&[6, 2], &[(&[0, 0], &[2, 2]), (&[4, 0], &[2, 2])]);
        assert!(
            gap.ends_with("8 of the 12 elements of shape [6, 2]: rows 2 to 3 are missing"),
            "{gap}"
        );
        let part = said(&[6, 2], &[(&[0, 0], &[6, 1]), (&[0, 1], &[4, 1])]);
        assert!(part.ends_with("rows 4 to 5 are there in part"), "{part}");
        assert!(said(&[6], &[]).ends_with("rows 0 to 5 are missing"));
        assert!(said(&[], &[]).ends_with("there is none"));
    }

    #[test]
    fn boxes_that_overlap_or_reach_beyond_are_refused() {
        let both = said(&[4, 2], &[(&[0, 0], &[3, 2]), (&[2, 1], &[2, 1])]);
        assert!(
            both.contains("overlap") && both.contains("[2, 1] at [2, 1]"),
            "{both}"
        );
        assert!(said(&[], &[(&[], &[]), (&[], &[])]).contains("overlap"));
        for chunk in [
            (&[0, 0][..], &[5, 2][..]),
            (&[0], &[4]),
            (&[usize::MAX, 0], &[2, 2]),
        ] {
            assert!(said(&[4, 2], &[chunk]).contains("not inside"), "{chunk:?}");
        }
        assert!(said(&[usize::MAX, 2], &[]).contains("too large"));
        assert!(said(&[0, usize::MAX, 2], &[]).contains("too large"));
    }
}
