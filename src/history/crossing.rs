//! A statistic that crossed a threshold line.

/// A statistic beyond a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Index of the series among those of the line, and its cell in the grid.
    pub unit: usize,
    pub cell: usize,
    /// The first record beyond the line, and the value there.
    pub begin: usize,
    pub to: f64,
    /// The first record back on the healthy side.
    pub end: Option<usize>,
    pub is_confirmed: bool,
    /// The record where the move began, and the value there; `None` if the series was beyond the line from the first record on.
    pub from: Option<(usize, f64)>,
}
